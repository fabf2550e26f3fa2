#include "planner/request/search_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "dapple/search/exact/exact_search.h"

namespace dapple {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char letter) {
    return (letter >= '0' && letter <= '9') || letter == '.' || letter == 'e' || letter == '+' ||
           letter == '-';
  });
}

}  // namespace

std::string cut_of_many_devices() {
  return fmt::format(
      "more than {} devices: nothing was searched beyond the first plans, and the bound is that of "
      "the work alone",
      ExactSearch::kMostDevices);
}

std::string cut_of_runtime(const PlanRestriction& restriction, bool only_least_depths) {
  return fmt::format(
      "what {} cannot express: replicas that differ from stage to stage or have unequal shares, "
      "recomputation in some stages{}{}{}",
      restriction.runtime,
      restriction.in_order ? ", devices in another order than its launcher's" : "",
      only_least_depths ? ", other depths than the least" : "",
      restriction.joints.empty() ? "" : ", some boundaries");
}

std::vector<std::string> cuts_of_pins(const Pins& pins, const ModelProfile& profile) {
  std::vector<std::string> cuts = to_texts(pins, profile);
  for (std::string& cut : cuts) cut.insert(0, kCutPinned);
  return cuts;
}

std::vector<std::string> exact_dimensions(const PlannerOptions& options, bool all_placements) {
  std::vector<std::string> searched{
      "stage boundaries",
      "replicas per stage",
      all_placements ? "placement: every set of devices, replicas in the order of their numbers"
                     : "placement: three policies",
      "micro-batch sizes that divide the global batch",
      "warm-up depths",
      "recomputation per stage",
      "idle devices"};
  if (!options.bucket_size) searched.emplace_back(kBucketSizes);
  return searched;
}

std::vector<std::string> dapple_dimensions(const PlannerOptions& options) {
  std::vector<std::string> searched{
      "stage boundaries",
      "replicas per stage",
      "placement by three policies",
      "micro-batch sizes that divide the global batch",
      "warm-up depths: policies A and B, deeper ones, what memory allows",
      "recomputation per stage",
      "idle devices"};
  if (!options.bucket_size) searched.emplace_back(kBucketSizes);
  return searched;
}

std::vector<std::string> families_dimensions() {
  return {"stage boundaries", "replicas per stage",
          "micro-batch sizes that divide the global batch"};
}

std::string limit_of_family(Duration iteration, Duration lower_bound) {
  const double possible = optimality_gap(iteration, std::min(lower_bound, iteration));
  if (possible <= 0) return "none is faster";
  return fmt::format("none is over {:.1f} % faster", std::ceil(1000 * possible) / 10);
}

bool is_line_of(std::string_view pattern, std::string_view line) {
  const std::size_t open = pattern.find('{');
  if (open == std::string_view::npos) return pattern == line;
  if (line.substr(0, open) != pattern.substr(0, open)) return false;
  pattern.remove_prefix(pattern.find('}', open) + 1);
  line.remove_prefix(open);
  // A number ends at the first letter that is none of it, which no pattern goes on with.
  const std::size_t end = line.find_first_of(" :;");
  if (!is_number(line.substr(0, end))) return false;
  line.remove_prefix(std::min(end, line.size()));
  return is_line_of(pattern, line);
}

}  // namespace dapple
