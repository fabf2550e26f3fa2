// Plans for the devices of one kind alone, where a cluster has several.
//
// In clusters of many servers a search does not try all placements, and those that it tries mix the
// kinds. A plan for one kind alone is a plan for the whole cluster that leaves the others idle: it
// is found by itself, so that the plan for the whole is never slower.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "dapple/plan/plan.h"
#include "dapple/planner/parallelism/plan_parallelisms.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "planner/candidates/candidate_evaluator.h"

namespace dapple::planner {

/// A plan for the servers whose devices are of one kind, with the numbers of their devices.
struct PlanOfOneKind {
  std::int32_t kind = 0;
  Plan plan;
};

/// Returns the fastest plan for the devices of one kind alone, as make_plan_of_any_parallelism()
/// makes it for each kind, of the forms `among` some or, where that is null, of all; nothing where
/// the topology has one kind, the search for the whole tries all placements, the planner is not the
/// exact one, or no plan was found. Kinds whose work alone takes as long as a plan of another kind
/// are left out. The searches may take part of the time limit. O(make_plan_of_any_parallelism() for
/// each kind).
std::optional<PlanOfOneKind> plan_of_one_kind(const PlanningContext& context,
                                              const std::optional<PlanRestriction>& restriction,
                                              const std::set<Parallelism>* among);

/// Returns the plan as one of the whole, simulated: on the topology of `inputs`, whose devices may
/// be groups, and with stages in the forms that `inputs` has. Nothing where these are not all of
/// the plan's forms, or memory does not suffice. Requires: the topology is the grouped form of that
/// for which the plan of one kind was made.
std::optional<SimulatedPlan> in_whole(const PlanOfOneKind& found, const PlanInputs& inputs,
                                      const Topology& topology, const PlannerOptions& options);

}  // namespace dapple::planner
