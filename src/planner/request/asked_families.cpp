#include "planner/request/asked_families.h"

#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

bool asks_for_families(const PlannerOptions& options) {
  return options.every_family || (options.family && !is_planned_as_1f1b(*options.family));
}

PlannerOptions options_to_start(const PlannerOptions& options) {
  PlannerOptions start = options;
  if (!asks_for_families(options)) return start;
  if (!options.every_family) start.planner = PlannerKind::Dapple;
  start.every_family = false;
  start.family.reset();
  return start;
}

}  // namespace dapple::planner
