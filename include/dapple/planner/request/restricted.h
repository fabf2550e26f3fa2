// Plans for a runtime that gives all stages the same number of replicas, with equal shares of every
// micro-batch, that recomputes on all stages or on none, and whose launcher assigns devices by
// number.
//
// The space is partitioned by the number of replicas and by recomputation, and each part is
// searched with both pinned. The bound of each part is proven as without restrictions, and the
// least of these bounds holds for every plan that the runtime can express. Parts that cannot hold a
// plan, with a number of replicas that divides none of the micro-batch sizes, are left out.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "dapple/planner/request/planner.h"

namespace dapple::planner {

/// What a target runtime can express.
struct PlanRestriction {
  /// The target as it was requested, such as "megatron".
  std::string target = {};
  /// The name of the runtime for the plan's record, such as "Megatron-LM".
  std::string runtime;
  /// Whether 1F1B runs only at the least depths that keep all stages busy.
  bool least_depths = false;
  /// Whether the runtime can recompute; if not, no stage does.
  bool recomputes = true;
  /// Whether devices are assigned by number, from the first stage on.
  bool in_order = false;
  /// Layers that begin no stage, in addition to those pinned.
  std::vector<std::int32_t> joints = {};
  /// The schedule families that the runtime can run, 1F1B first; they are searched where the
  /// options ask for every family.
  std::vector<ScheduleFamily> families = {ScheduleFamily::OneFOneB};
};

/// Makes a plan like make_plan(), within the restriction and within what the options pin. A part
/// that was given up, or not reached before the search was stopped, enters the bound with a lower
/// bound on all plans. Where the options ask for every family, each is planned for by itself, and
/// the bound is the least of theirs. O(make_plan(), times twice the numbers of replicas that are
/// tried). Requires: no cut is pinned at a joint.
std::variant<MadePlan, Infeasible> make_restricted_plan(const ModelProfile& profile,
                                                        const Topology& topology,
                                                        const PlannerOptions& options,
                                                        const PlanRestriction& restriction,
                                                        Progress* progress = nullptr);

}  // namespace dapple::planner
