#include "dapple/core/characters.h"

#include <algorithm>
#include <array>

namespace dapple {
namespace {

struct CodeRange {
  char32_t first;
  char32_t last;
};

constexpr std::array<CodeRange, 20> kHidden{
    {{0x00, 0x1F},     {0x7F, 0x9F},       {0xAD, 0xAD},       {0x34F, 0x34F},
     {0x61C, 0x61C},   {0x115F, 0x1160},   {0x17B4, 0x17B5},   {0x180B, 0x180F},
     {0x200B, 0x200F}, {0x2028, 0x202E},   {0x2060, 0x206F},   {0x3164, 0x3164},
     {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB},
     {0xFFFE, 0xFFFF}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}}};

/// Returns the length in bytes of a character whose first byte is `first`; 0 if no character begins
/// with that byte.
std::size_t length_by(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

/// Whether `length` bytes are the shortest encoding of `code`, and `code` is neither half of a
/// surrogate pair nor beyond the last code point.
bool is_code_point(char32_t code, std::size_t length) {
  constexpr std::array<char32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code >= kLeast[length] && code <= 0x10FFFF && !is_surrogate;
}

}  // namespace

Character first_character(std::string_view text) {
  constexpr Character kNone{.code = 0, .length = 1, .is_valid = false};
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t length = length_by(first);
  if (length == 1) return {.code = first, .length = 1};
  if (length == 0 || text.size() < length) return kNone;
  char32_t code = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0U) != 0x80U) return kNone;
    code = (code << 6U) | (byte & 0x3FU);
  }
  return is_code_point(code, length) ? Character{.code = code, .length = length} : kNone;
}

bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0);
}

bool is_hidden(char32_t code) {
  return std::any_of(kHidden.begin(), kHidden.end(), [code](const CodeRange& range) {
    return code >= range.first && code <= range.last;
  });
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.is_valid && !is_hidden(character.code)) {
      result += text.substr(0, character.length);
    } else {
      result += '?';
    }
    text.remove_prefix(character.length);
  }
  return result;
}

std::string with_hidden_escaped(std::string_view json) {
  constexpr char32_t kFirstOfPairs = 0x10000;
  const auto escape = [](char32_t unit) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text = "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) text += kDigits[(unit >> shift) & 0xF];
    return text;
  };
  std::string result;
  while (!json.empty()) {
    const auto plain = std::find_if(json.begin(), json.end(),
                                    [](char c) { return static_cast<unsigned char>(c) >= 0x7F; });
    result.append(json.begin(), plain);
    json.remove_prefix(static_cast<std::size_t>(plain - json.begin()));
    if (json.empty()) break;
    const Character character = first_character(json);
    if (!character.is_valid || !is_hidden(character.code)) {
      result += json.substr(0, character.length);
    } else if (character.code < kFirstOfPairs) {
      result += escape(character.code);
    } else {
      const char32_t beyond = character.code - kFirstOfPairs;
      result += escape(0xD800 + (beyond >> 10U)) + escape(0xDC00 + (beyond & 0x3FFU));
    }
    json.remove_prefix(character.length);
  }
  return result;
}

}  // namespace dapple
