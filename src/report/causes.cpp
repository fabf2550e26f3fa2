#include "dapple/report/causes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dapple/report/show.h"

namespace dapple::report {

std::string main_causes(const TimeParts& faster, const TimeParts& slower, Duration whole) {
  std::vector<std::pair<Duration, const TimePart*>> losses;
  for (const TimePart& part : kTimeParts) {
    const Duration loss = slower.*part.part - faster.*part.part;
    if (loss > Duration{}) losses.emplace_back(loss, &part);
  }
  std::stable_sort(losses.begin(), losses.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  constexpr std::int64_t kWorthAWord = 5;  // losses below 1/5 of the largest are omitted
  std::string text;
  for (const auto& [loss, part] : losses) {
    if (kWorthAWord * loss < losses.front().first) break;
    text += (text.empty() ? "" : ", ") + std::string(part->name) + ' ' + show(loss, whole);
  }
  return text;
}

}  // namespace dapple::report
