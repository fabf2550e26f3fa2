// Plans whose devices are groups that share every layer, in whichever of the forms of parallelism
// that the profile has variants for is the fastest.
//
// The space is partitioned by the form of parallelism, which is the same in all stages. In each
// part a group is one device (cost/device_groups.h), so that search, bounds and simulation are
// those of plans without groups. The least of the parts' bounds holds for all of them. Where stages
// may differ in their form, there are parts besides in which each stage has any of several forms
// with groups of one size.
#pragma once

#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "dapple/cost/device_groups.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/profile/parallelism.h"

namespace dapple::planner {

/// Makes a plan as make_plan() and make_restricted_plan() do, of any form of parallelism that is
/// asked for. Forms whose first plans are the fastest are searched first, and later ones only for
/// plans that are faster than what was found.
///
/// The document has a record of each form if there are several. Throws Error(BadInput) with the
/// place in the request if the pinned degree has no variants or no groups on the topology.
/// Where the topology has several kinds of devices and not all placements are tried, the plan is no
/// slower than the plan for the servers of one kind alone, of the forms that the whole topology
/// allows. Requires: check_compatible() is empty.
std::variant<MadePlan, Infeasible> make_plan_of_any_parallelism(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction,
    const std::set<Parallelism>* among = nullptr);

}  // namespace dapple::planner
