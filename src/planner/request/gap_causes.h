// Why a search left a gap.
#pragma once

#include "dapple/plan/document.h"
#include "dapple/plan/warning_text.h"

namespace dapple::planner {

/// Returns why a search that was not stopped ended with a gap, as far as its record says: its
/// budget of work was spent, or placements, families or whole searches were left out. Requires: the
/// document has a request and a bound, and the requested gap was not reached.
GapCauses causes_of_gap(const PlanDocument& document);

}  // namespace dapple::planner
