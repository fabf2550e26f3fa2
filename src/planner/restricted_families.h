// A restricted plan under every schedule that a runtime has: each planned for by itself.
#pragma once

#include <variant>

#include "dapple/planner/request/restricted.h"

namespace dapple::planner {

/// As make_restricted_plan(), for each of the restriction's families. Requires: options ask for
/// every family.
std::variant<MadePlan, Infeasible> plan_restricted_families(const ModelProfile& profile,
                                                            const Topology& topology,
                                                            const PlannerOptions& options,
                                                            const PlanRestriction& restriction,
                                                            Progress* progress);

}  // namespace dapple::planner
