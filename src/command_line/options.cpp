#include "dapple/command_line/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <numeric>
#include <utility>

#include "dapple/core/decimal.h"
#include "dapple/io/documents/documents.h"
#include "dapple/report/show.h"

namespace dapple::command_line {
namespace {

namespace po = boost::program_options;

po::options_description describe(const std::vector<OptionSpec>& specs) {
  po::options_description description;
  for (const OptionSpec& spec : specs) {
    std::string name = spec.name;
    if (spec.letter != 0) name += std::string(",") + spec.letter;
    if (!spec.value.empty()) {
      description.add_options()(name.c_str(), po::value<std::string>());
    } else {
      description.add_options()(name.c_str(), po::bool_switch());
    }
  }
  return description;
}

Error unknown_option(const std::string& name, const std::vector<OptionSpec>& specs) {
  std::vector<std::string> candidates;
  for (const OptionSpec& spec : specs) candidates.push_back("--" + spec.name);
  // What follows "=" is a value, not a part of the name.
  const std::string word = name.substr(0, name.find('='));
  const auto suggestion = nearest(word, candidates);
  return usage_error(printable(word), suggestion ? "unknown option, nearest is " + *suggestion
                                                 : std::string{"unknown option"});
}

po::basic_parsed_options<char> parse(const std::vector<std::string>& arguments,
                                     const std::vector<OptionSpec>& specs,
                                     const po::options_description& description) {
  namespace style = po::command_line_style;
  try {
    return po::command_line_parser(arguments)
        .options(description)
        .style(style::unix_style & ~style::allow_guessing)
        .run();
  } catch (const po::unknown_option& error) {
    throw unknown_option(error.get_option_name(), specs);
  } catch (const po::invalid_command_line_syntax& error) {
    using Syntax = po::invalid_syntax;
    switch (error.kind()) {
      case Syntax::missing_parameter:
      case Syntax::empty_adjacent_parameter:
        throw usage_error(error.get_option_name(), "expected a value");
      case Syntax::extra_parameter:
        throw usage_error(error.get_option_name(), "expected no value");
      default:
        throw usage_error("", error.what());
    }
  } catch (const po::error& error) { throw usage_error("", error.what()); }
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // row[j]: edit distance from the part of `a` seen so far to the first j letters of `b`.
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string in_lower_case(std::string_view text) {
  std::string lower{text};
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

/// Returns billionths of a number, which may be written as a percentage.
std::optional<Wide> scaled_fraction(const std::string& text) {
  const bool is_percent = !text.empty() && text.back() == '%';
  return is_percent ? scaled_exactly(text.substr(0, text.size() - 1), kOne.billionths / 100)
                    : scaled_exactly(text, kOne.billionths);
}

}  // namespace

Error usage_error(const std::string& option, const std::string& message) {
  return Error{ErrorKind::Usage, "", {{option, message}}};
}

std::vector<std::string> parts_of_list(const std::string& list) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t comma = list.find(','); comma != std::string::npos;
       comma = list.find(',', begin)) {
    parts.push_back(list.substr(begin, comma - begin));
    begin = comma + 1;
  }
  parts.push_back(list.substr(begin));
  return parts;
}

std::vector<OptionSpec> common_options() {
  return {{.name = "verbose", .letter = 'v', .text = "Show more of what is done and found."},
          {.name = "quiet",
           .letter = 'q',
           .text = "Print only requested results, warnings and errors."},
          {.name = "help", .letter = 'h', .text = "Print this help, or that of a command."}};
}

std::string list_of(const std::vector<std::string>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    list += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  return list;
}

std::string sentence_of(const OptionSpec& option) {
  constexpr std::string_view kChoices = "{}";
  std::string sentence = option.text;
  const std::size_t place = sentence.find(kChoices);
  if (place != std::string::npos) {
    sentence.replace(place, kChoices.size(), list_of(option.choices));
  }
  sentence.pop_back();  // the full stop
  if (!option.default_value.empty()) {
    sentence += fmt::format(" (default: {})", option.default_value);
  }
  return sentence + (option.repeats ? " (repeatable)." : ".");
}

Options::Options(const std::vector<std::string>& arguments, std::vector<OptionSpec> specs)
    : specs_(std::move(specs)) {
  for (OptionSpec& common : common_options()) specs_.push_back(std::move(common));
  const po::options_description description = describe(specs_);
  for (const auto& option : parse(arguments, specs_, description).options) {
    if (option.position_key >= 0) {
      positional_.insert(positional_.end(), option.value.begin(), option.value.end());
      continue;
    }
    const std::string name = description.find(option.string_key, false).long_name();
    const std::string value = option.value.empty() ? std::string{} : option.value.front();
    std::vector<std::string>& values = values_[name];
    const bool repeats = std::any_of(specs_.begin(), specs_.end(), [&](const OptionSpec& spec) {
      return spec.name == name && spec.repeats;
    });
    if (!values.empty() && !repeats) throw usage_error("--" + name, "given twice");
    values.push_back(value);
  }
  if (has("quiet") && has("verbose")) throw usage_error("--quiet", "cannot be used with --verbose");
}

std::optional<std::string> Options::text(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional{found->second.front()};
}

std::vector<std::string> Options::texts(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

void Options::require_options_only(const std::string& example) const {
  if (positional_.empty()) return;
  throw usage_error(printable(positional_.front()), "expected options only, as in " + example);
}

std::string Options::only_file(const std::string& name, const std::string& what) const {
  const std::optional<std::string> named = text(name);
  const std::size_t count = positional_.size() + (named ? 1 : 0);
  if (count == 1) return named ? *named : positional_.front();
  if (count == 0) throw usage_error("--" + name, what + " is required");
  throw usage_error(printable(positional_.back()), "expected " + what + " and options, got more");
}

std::string Options::required(const std::string& name, const std::string& what) const {
  const auto value = text(name);
  if (!value) throw usage_error("--" + name, what + " is required");
  return *value;
}

std::optional<std::int64_t> Options::positive_integer(const std::string& name,
                                                      std::int64_t most) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  std::int64_t number = 0;
  const char* end = value->data() + value->size();
  const auto [stop, fault] = std::from_chars(value->data(), end, number);
  if (fault != std::errc{} || stop != end || number < 1 || number > most) {
    throw usage_error("--" + name, fmt::format("expected a whole number from 1 to {}, got \"{}\"",
                                               most, printable(*value)));
  }
  return number;
}

std::optional<Factor> Options::positive_factor(const std::string& name) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto factor = parse_factor(*value);
  if (!factor) {
    throw usage_error("--" + name, fmt::format("expected a number above 0 with at most nine "
                                               "decimals, at most 1000, got \"{}\"",
                                               printable(*value)));
  }
  return factor;
}

std::optional<Factor> Options::positive_number(const std::string& name, std::int64_t most) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const std::optional<Wide> billionths = scaled_exactly(*value, kOne.billionths);
  if (!billionths || *billionths <= 0 || *billionths > Wide{most} * kOne.billionths) {
    throw usage_error("--" + name,
                      fmt::format("expected a number above 0 with at most nine decimals, at most "
                                  "{}, got \"{}\"",
                                  most, printable(*value)));
  }
  return Factor{static_cast<std::int64_t>(*billionths)};
}

std::optional<Duration> Options::positive_seconds(const std::string& name) const {
  constexpr std::int64_t kMostSeconds = 1'000'000;
  const auto value = text(name);
  if (!value) return std::nullopt;
  const std::optional<Wide> time = scaled_exactly(*value, kNanosecondsPerSecond);
  if (!time || *time <= 0 || *time > Wide{kMostSeconds} * kNanosecondsPerSecond) {
    throw usage_error("--" + name,
                      fmt::format("expected seconds, a number above 0 with at most nine decimals, "
                                  "at most {}, got \"{}\"",
                                  kMostSeconds, printable(*value)));
  }
  return Duration{static_cast<std::int64_t>(*time)};
}

std::optional<Factor> Options::fraction(const std::string& name) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const std::optional<Wide> billionths = scaled_fraction(*value);
  if (!billionths || *billionths < 0 || *billionths >= kOne.billionths) {
    throw usage_error("--" + name, fmt::format("expected a fraction such as \"1%\" or \"0.01\", at "
                                               "least 0 and below 1, got \"{}\"",
                                               printable(*value)));
  }
  return Factor{static_cast<std::int64_t>(*billionths)};
}

std::optional<Bytes> Options::size(const std::string& name) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const std::optional<Bytes> size = io::parse_size(*value);
  if (!size) {
    throw usage_error(
        "--" + name, fmt::format("expected a size such as \"25 MiB\" (B with k, M, G, T, Ki, Mi or "
                                 "Gi), at least 1 B, got \"{}\"",
                                 printable(*value)));
  }
  return size;
}

namespace {

/// Whether the text is UTF-8 without control characters, so that files can hold it as a name.
bool is_text_of_names(std::string_view text) {
  while (!text.empty()) {
    const Character character = first_character(text);
    if (!character.is_valid || is_control(character.code)) return false;
    text.remove_prefix(character.length);
  }
  return true;
}

}  // namespace

std::optional<std::string> Options::name(const std::string& name) const {
  constexpr std::size_t kLongest = 200;
  const auto value = text(name);
  if (!value) return std::nullopt;
  const std::size_t length = report::display_width(*value);
  if (length < 1 || length > kLongest || !is_text_of_names(*value)) {
    throw usage_error("--" + name,
                      fmt::format("expected a name of 1 to {} characters, none of them a control "
                                  "character, got \"{}\"",
                                  kLongest, report::shorten(printable(*value), 40, {})));
  }
  return value;
}

bool Options::is_word(const std::string& name, const std::string& word) const {
  const auto value = text(name);
  if (!value || value == word) return value.has_value();
  if (!nearest(*value, {word})) return false;
  throw usage_error("--" + name,
                    fmt::format("expected {} or another value, got \"{}\", nearest is {}", word,
                                printable(*value), word));
}

std::string Options::choice(const std::string& name) const {
  for (const OptionSpec& spec : specs_) {
    if (spec.name == name) return choice(name, spec.choices);
  }
  throw Bug("no option of the command is named " + name);
}

std::string Options::choice(const std::string& name,
                            const std::vector<std::string>& choices) const {
  const std::string value = text(name).value_or(choices.front());
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return value;
  const auto suggestion = nearest(value, choices);
  throw usage_error("--" + name,
                    fmt::format("expected {}, got \"{}\"{}", list_of(choices), printable(value),
                                suggestion ? ", nearest is " + *suggestion : ""));
}

std::optional<Factor> parse_factor(std::string_view text) {
  constexpr Factor kMost{1'000 * kOne.billionths};
  const std::optional<Wide> billionths = scaled_exactly(text, kOne.billionths);
  if (!billionths || *billionths <= 0 || *billionths > kMost.billionths) return std::nullopt;
  return Factor{static_cast<std::int64_t>(*billionths)};
}

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  const std::string plain = in_lower_case(word);
  // With more than a third of its letters wrong, it is another word.
  std::size_t fewest = std::max<std::size_t>(word.size() / 3, 2) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t edits = edit_distance(plain, in_lower_case(candidate));
    const bool is_alike = 2 * edits <= std::max(word.size(), candidate.size());
    if (is_alike && edits < fewest) {
      fewest = edits;
      best = candidate;
    }
  }
  return best;
}

}  // namespace dapple::command_line
