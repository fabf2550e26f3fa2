#include <fmt/format.h>

#include <algorithm>

#include "dapple/interop/plans/foreign_plan.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

/// Returns "stage 1, replica 0" for "/stages/1/devices/0".
std::string words_of_pointer(std::string_view pointer) {
  const std::vector<std::string_view> steps = split(pointer.substr(1), "/");
  std::vector<std::string> words;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] == "schedule") continue;
    const bool is_counted = i + 1 < steps.size() && parse_count(steps[i + 1]).has_value();
    std::string word{steps[i]};
    std::replace(word.begin(), word.end(), '_', ' ');
    if (is_counted) {
      if (word == "stages") word = "stage";
      if (word == "devices") word = "replica";
      if (word == "warmup depths") word = "warm-up depth of stage";
      word += fmt::format(" {}", steps[++i]);
    }
    words.push_back(std::move(word));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

std::vector<Violation> in_words(std::vector<Violation> faults) {
  constexpr std::string_view kStages = " /stages/";
  for (Violation& fault : faults) {
    if (fault.place.starts_with('/')) fault.place = words_of_pointer(fault.place);
    for (std::size_t at = fault.message.find(kStages); at != std::string::npos;
         at = fault.message.find(kStages, at + 1)) {
      const std::size_t end = std::min(fault.message.find(' ', at + 1), fault.message.size());
      const std::string words =
          words_of_pointer(std::string_view(fault.message).substr(at + 1, end - at - 1));
      fault.message.replace(at + 1, end - at - 1, words);
    }
  }
  return faults;
}

}  // namespace dapple::interop
