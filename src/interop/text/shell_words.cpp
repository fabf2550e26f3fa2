#include "interop/text/shell_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

constexpr std::string_view kSpaces = " \t\r\n\v\f()";

class WordScanner {
 public:
  explicit WordScanner(std::string_view text) : text_(text) {}

  std::vector<ShellWord> run() {
    while (skip_to_word()) words_.push_back(scan_word());
    return std::move(words_);
  }

 private:
  bool is_at_end() const { return position_ >= text_.size(); }
  bool is_escaped_line_end() const {
    return text_[position_] == '\\' && position_ + 1 < text_.size() && text_[position_ + 1] == '\n';
  }
  char take() {
    const char c = text_[position_++];
    if (c == '\n') ++line_;
    return c;
  }
  /// Skips to the next word. Returns false at the end of the text.
  bool skip_to_word();
  ShellWord scan_word();
  void scan_quoted(char quote, std::string& word);

  std::string_view text_;
  std::size_t position_ = 0;
  std::int64_t line_ = 1;
  std::vector<ShellWord> words_;
};

bool WordScanner::skip_to_word() {
  while (!is_at_end()) {
    if (text_[position_] == '#') {
      while (!is_at_end() && text_[position_] != '\n') ++position_;
    } else if (is_escaped_line_end()) {
      take();
      take();
    } else if (kSpaces.find(text_[position_]) != std::string_view::npos) {
      take();
    } else {
      return true;
    }
  }
  return false;
}

void WordScanner::scan_quoted(char quote, std::string& word) {
  while (!is_at_end()) {
    const char c = take();
    if (c == quote) return;
    if (c == '\\' && quote == '"' && !is_at_end()) {
      word += take();
    } else {
      word += c;
    }
  }
}

ShellWord WordScanner::scan_word() {
  ShellWord word{.line = line_, .text = {}};
  while (!is_at_end() && kSpaces.find(text_[position_]) == std::string_view::npos) {
    if (is_escaped_line_end()) break;
    const char c = take();
    if (c == '"' || c == '\'') {
      scan_quoted(c, word.text);
    } else if (c == '\\' && !is_at_end()) {
      word.text += take();
    } else {
      word.text += c;
    }
  }
  return word;
}

}  // namespace

std::vector<ShellWord> shell_words(std::string_view text) {
  return WordScanner(text).run();
}

void ShellOptions::refuse(std::int64_t line, std::string message) const {
  throw_faults({{line, std::move(message)}}, source_);
  throw Bug("a fault that was not thrown");
}

std::vector<std::string> ShellOptions::values(std::string_view name) const {
  std::vector<std::string> values;
  auto word = std::find_if(words_.begin(), words_.end(),
                           [&](const ShellWord& some) { return some.text == name; });
  if (word == words_.end()) return values;
  for (++word; word != words_.end() && !word->text.starts_with("--"); ++word) {
    values.push_back(word->text);
  }
  return values;
}

std::int64_t ShellOptions::line_of(std::string_view name) const {
  for (const ShellWord& word : words_) {
    const bool is_it = begins_with(word.text, name) &&
                       (word.text.size() == name.size() || word.text[name.size()] == '=');
    if (is_it) return word.line;
  }
  return 0;
}

std::optional<ShellOption> ShellOptions::value(std::string_view name) const {
  std::optional<ShellOption> found;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const ShellWord& word = words_[i];
    ShellOption option{.line = word.line, .value = {}};
    if (word.text == name) {
      const bool has_value = i + 1 < words_.size() && !begins_with(words_[i + 1].text, "--");
      if (!has_value) refuse(word.line, fmt::format("{}: expected a value behind it", name));
      option.value = words_[i + 1].text;
    } else if (begins_with(word.text, name) && word.text[name.size()] == '=') {
      option.value = word.text.substr(name.size() + 1);
    } else {
      continue;
    }
    if (found && found->value != option.value) {
      refuse(word.line, fmt::format("{}: expected what line {} says, '{}', got '{}'", name,
                                    found->line, shown(found->value), shown(option.value)));
    }
    if (!found) found = std::move(option);
  }
  return found;
}

std::optional<std::int64_t> ShellOptions::count(std::string_view name) const {
  const std::optional<ShellOption> option = value(name);
  if (!option) return std::nullopt;
  const std::optional<std::int32_t> number = parse_count(option->value);
  if (number && *number >= 1) return *number;
  refuse(option->line, fmt::format("{}: expected a whole number from 1 on, got '{}'", name,
                                   shown(option->value)));
}

}  // namespace dapple::interop
