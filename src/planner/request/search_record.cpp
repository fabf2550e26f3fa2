#include "planner/request/search_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "dapple/plan/optimality.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/exact/exact_search.h"

namespace dapple::planner {
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
      search::ExactSearch::kMostDevices);
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

namespace {

/// Returns by how many percent the bound is higher without the placements that were not tried,
/// rounded as in the record; nothing where all were tried.
std::optional<double> rise_without_placements(const SearchRecord& search) {
  const auto line = std::find_if(search.cut.begin(), search.cut.end(),
                                 [](const auto& cut) { return is_line_of(kCutPlacements, cut); });
  if (line == search.cut.end()) return std::nullopt;
  const std::string_view pattern = kCutPlacements;
  return std::strtod(line->c_str() + pattern.find('{'), nullptr);
}

/// Adds the causes for which the search of 1F1B and GPipe left a gap.
void add_causes_of_pipelines(const PlanDocument& document, Duration bound, Duration threshold,
                             std::vector<std::string>& causes, std::vector<std::string>& untried) {
  const SearchRecord& search = document.search;
  const auto has_line = [&](std::string_view pattern) {
    return std::any_of(search.cut.begin(), search.cut.end(),
                       [&](const std::string& cut) { return is_line_of(pattern, cut); });
  };
  const bool is_unsearched = has_line(cut_of_many_devices());
  if (is_unsearched) {
    causes.push_back(
        fmt::format("on more than {} devices nothing was searched beyond the first plans",
                    search::ExactSearch::kMostDevices));
  } else if (has_line(kCutTooLong)) {
    causes.emplace_back("some of the searches would have taken too long");
  }
  // The record rounds the percentage, so the true figure may be larger by this much.
  constexpr double kRounding = 0.005;
  const std::optional<double> rise = rise_without_placements(search);
  const double percent = rise ? *rise + kRounding : 0;
  const double tried = static_cast<double>(bound.ns) * (1 + percent / 100);
  const bool is_tried_open = search.open > 0 && tried < static_cast<double>(threshold.ns);
  if (is_tried_open && causes.empty()) {
    causes.emplace_back("the search has spent its budget of work");
  }
  if (rise && (*rise > 0 || !is_tried_open)) { untried.emplace_back("placements"); }
}

}  // namespace

std::string cause_of_gap(const PlanDocument& document) {
  const Prediction& prediction = document.prediction;
  const Duration threshold = gap_threshold(prediction.iteration, document.request->target_gap);
  std::vector<std::string> causes;
  std::vector<std::string> untried;
  std::vector<std::string> families;
  bool are_pipelines_open = document.schedules.empty();
  Duration bound_of_pipelines = prediction.lower_bound.value_or(Duration{});
  for (const ScheduleRecord& record : document.schedules) {
    if (!record.lower_bound || *record.lower_bound >= threshold) continue;
    if (!is_planned_as_1f1b(record.family)) {
      families.emplace_back(to_string(record.family));
    } else {
      are_pipelines_open = true;
      bound_of_pipelines = *record.lower_bound;
    }
  }
  if (are_pipelines_open) {
    add_causes_of_pipelines(document, bound_of_pipelines, threshold, causes, untried);
  }
  if (!families.empty()) {
    untried.push_back(fmt::format("plans of {}", fmt::join(families, ", ")));
  }
  if (!untried.empty()) {
    causes.push_back(fmt::format("the bound holds also for {} that were not tried",
                                 fmt::join(untried, " and ")));
  }
  if (causes.empty()) causes.emplace_back("the search has spent its budget of work");
  return fmt::format("{}{}", fmt::join(causes, ", and "), kGapStays);
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
  // A number ends at a space, a colon or a semicolon, or with the line.
  const std::size_t end = line.find_first_of(" :;");
  if (!is_number(line.substr(0, end))) return false;
  line.remove_prefix(std::min(end, line.size()));
  return is_line_of(pattern, line);
}

}  // namespace dapple::planner
