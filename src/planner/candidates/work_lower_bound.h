// What no plan is below, whatever was searched: the bound of what a search was stopped before, or
// gave up.
#pragma once

#include "dapple/planner/request/planner.h"

namespace dapple::planner {

/// No plan of the options' micro-batch sizes whose replicas have equal shares is faster, whatever
/// its stages, family and order: bounds of search/families/family_bound.h.
/// O(micro-batch sizes * (layers * shares + devices^2)). Requires: check_compatible() is empty.
Duration work_lower_bound(const ModelProfile& profile, const Topology& topology,
                          const PlannerOptions& options);

}  // namespace dapple::planner
