// Makes untrusted text safe to show on a terminal: decodes UTF-8 character by character and detects
// characters that are invisible or that change the position of other text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dapple {

struct Character {
  char32_t code = 0;
  std::size_t length = 1;  // bytes
  /// False for a single byte at which no valid UTF-8 character begins (RFC 3629).
  bool is_valid = true;
};

/// Returns the first character of the text. Requires: text is not empty. O(1).
Character first_character(std::string_view text);

/// Whether the character is a control character (C0, C1 or DEL), which terminals interpret.
bool is_control(char32_t code);

/// Whether the character is a control character, a line or paragraph separator, a character that
/// changes the direction of text, or one of zero width: Unicode's Default_Ignorable_Code_Point
/// (DerivedCoreProperties.txt, 15.0), U+FFF9 to FFFB, and U+FFFE and FFFF, which XML has no place
/// for.
bool is_hidden(char32_t code);

/// Returns the text with a '?' in place of each character that is_hidden() and of each byte that is
/// not valid UTF-8, so that a terminal shows all of it and nothing else is affected. O(length).
std::string printable(std::string_view text);

/// Returns JSON text, or a part of it, with an escape sequence in place of DEL and of each
/// non-ASCII character that is_hidden(): the values stay the same, and all of them are visible.
/// Such characters can occur in JSON strings only. O(length).
std::string with_hidden_escaped(std::string_view json);

}  // namespace dapple
