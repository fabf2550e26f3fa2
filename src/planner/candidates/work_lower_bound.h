// A lower bound on all plans from their work alone, for the parts of a space that a search gave up
// or did not reach.
#pragma once

#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

/// Returns a lower bound on the iteration of every plan of the requested micro-batch sizes whose
/// replicas have equal shares, whatever its stages, family and order. Source: the bounds (F6) to
/// (F8) of search/families/family_bound.h; where stages may deal micro-batches
/// or have groups of different sizes, (P1). It is the same for all forms with one
/// representative_of_some_layers().
/// O(micro-batch sizes * (layers * shares + devices^2)).
/// Requires: check_compatible() is empty.
Duration work_lower_bound(const PlanningContext& context);

}  // namespace dapple::planner
