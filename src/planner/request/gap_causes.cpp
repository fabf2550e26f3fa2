#include "planner/request/gap_causes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/search/exact/exact_search.h"

namespace dapple::planner {
namespace {

/// Returns the figures of the line about what was left out that has this pattern, if there is one.
std::optional<std::vector<double>> figures_of_cut(std::string_view pattern,
                                                  const SearchRecord& search) {
  for (const std::string& line : search.cut) {
    if (auto figures = figures_in(pattern, line)) return figures;
  }
  return std::nullopt;
}

/// Adds the causes for which the search of 1F1B and GPipe left a gap.
void add_causes_of_pipelines(const SearchRecord& search, Duration bound, Duration threshold,
                             GapCauses& causes) {
  if (search.planner == kDiagramPlanner) {
    causes.is_bound_relaxed = true;
    return;
  }
  constexpr std::int32_t kMostDevices = search::ExactSearch::kMostDevices;
  const std::string many_devices = cut_of_many_devices(kMostDevices);
  if (std::find(search.cut.begin(), search.cut.end(), many_devices) != search.cut.end()) {
    causes.most_devices = kMostDevices;
  } else {
    causes.were_searches_too_long = figures_of_cut(kTooLongPattern, search).has_value();
  }
  // By how many percent the bound is higher without the placements that were not tried. The record
  // rounds this, so the true figure may be larger by half of its last place.
  constexpr double kRounding = 0.005;
  const std::optional<std::vector<double>> rise = figures_of_cut(kPlacementsPattern, search);
  const double percent = rise ? rise->front() + kRounding : 0;
  const double tried = static_cast<double>(bound.ns) * (1 + percent / 100);
  const bool is_tried_open = search.open > 0 && tried < static_cast<double>(threshold.ns);
  causes.is_budget_spent = is_tried_open && !causes.most_devices && !causes.were_searches_too_long;
  causes.untried_placements = rise && (rise->front() > 0 || !is_tried_open);
}

}  // namespace

GapCauses causes_of_gap(const PlanDocument& document) {
  const Prediction& prediction = document.prediction;
  const Duration threshold = gap_threshold(fastest_found(document), document.request->target_gap);
  GapCauses causes;
  bool are_pipelines_open = document.schedules.empty();
  Duration bound_of_pipelines = prediction.lower_bound.value_or(Duration{});
  for (const ScheduleRecord& record : document.schedules) {
    if (!record.lower_bound || *record.lower_bound >= threshold) continue;
    if (!is_planned_as_1f1b(record.family)) {
      causes.untried_families.push_back(record.family);
    } else {
      are_pipelines_open = true;
      bound_of_pipelines = *record.lower_bound;
    }
  }
  if (are_pipelines_open) {
    add_causes_of_pipelines(document.search, bound_of_pipelines, threshold, causes);
  }
  const bool is_explained = causes.most_devices || causes.were_searches_too_long ||
                            causes.untried_placements || causes.is_bound_relaxed ||
                            !causes.untried_families.empty();
  causes.is_budget_spent = causes.is_budget_spent || !is_explained;
  return causes;
}

}  // namespace dapple::planner
