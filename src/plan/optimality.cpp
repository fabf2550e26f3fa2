#include "dapple/plan/optimality.h"

#include <algorithm>
#include <cstdint>

#include "dapple/plan/request.h"
#include "dapple/plan/schedule_family.h"

namespace dapple {

double optimality_gap(Duration iteration, Duration lower_bound) {
  const auto whole = static_cast<double>(std::max<std::int64_t>(1, iteration.ns));
  return static_cast<double>(iteration.ns - lower_bound.ns) / whole;
}

Duration gap_threshold(Duration iteration, Factor gap) {
  if (iteration.is_infinite()) return iteration;
  const Wide allowed = Wide{iteration.ns} * gap.billionths;
  return iteration - Duration{divide_down(allowed, kOne.billionths)};
}

bool is_within_gap(Duration iteration, Duration lower_bound, Factor gap) {
  return lower_bound >= gap_threshold(iteration, gap);
}

void set_proven_bound(Prediction& prediction, std::optional<Duration> bound) {
  prediction.lower_bound.reset();
  prediction.optimality_gap.reset();
  if (!bound) return;
  prediction.lower_bound = std::min(*bound, prediction.iteration);
  prediction.optimality_gap = optimality_gap(prediction.iteration, *prediction.lower_bound);
}

bool is_gap_closed(const Prediction& prediction) {
  return prediction.lower_bound == prediction.iteration;
}

Duration fastest_found(const PlanDocument& document) {
  return document.search.fastest.value_or(document.prediction.iteration);
}

bool is_gap_closed(const PlanDocument& document) {
  return document.prediction.lower_bound == fastest_found(document);
}

Duration slowest_choice(Duration fastest, const JitterRequest& jitter) {
  const Wide more = Wide{fastest.ns} * jitter.deviation.billionths;
  return fastest + Duration{divide_down(more, kOne.billionths)};
}

bool has_reached_gap(const PlanDocument& document) {
  const PlanRequest& request = *document.request;
  const std::optional<Duration>& bound = document.prediction.lower_bound;
  if (request.planner != PlannerKind::Exact || !bound) return false;
  return is_within_gap(fastest_found(document), *bound, request.target_gap);
}

bool is_search_done(const PlanDocument& document) {
  const PlanRequest& request = *document.request;
  if (!has_reached_gap(document) || request.jitter) return false;
  if (is_gap_closed(document)) return true;
  return request.family && is_planned_as_1f1b(*request.family) && request.target.empty();
}

}  // namespace dapple
