// Plans for a runtime that gives all stages the same number of replicas, with equal shares of every
// micro-batch, and recomputes in all of them or in none; and whose launcher numbers devices.
//
// The space is cut by these two answers, and each part searched with them pinned: so the bound of
// every part is proven as without restrictions, and the least of them is below every plan that the
// runtime can express. Parts that cannot hold a plan are left out: counts that divide no
// micro-batch size that is looked at.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "dapple/planner/request/planner.h"

namespace dapple::planner {

struct PlanRestriction {
  std::string target = {};                // "megatron", as it was asked for
  std::string runtime;                    // "Megatron-LM", for the plan's record
  bool least_depths = false;              // 1F1B in the least depths that keep all stages busy
  bool recomputes = true;                 // else no stage does
  bool in_order = false;                  // devices by number from the first stage on
  std::vector<std::int32_t> joints = {};  // layers that begin no stage, beside those pinned
  /// That it runs, 1F1B first: those that are looked at where options ask for every family.
  std::vector<ScheduleFamily> families = {ScheduleFamily::OneFOneB};
};

/// As make_plan(), restricted; what options pin holds as well. A part that was given up, or not
/// reached before the search was stopped, counts with what all plans take at least. Where options
/// ask for every family, each is planned for by itself, and the bound is the least of theirs. O(as
/// make_plan(), times twice the numbers of replicas that are tried). Requires: no cut is pinned at
/// a joint.
std::variant<MadePlan, Infeasible> make_restricted_plan(const ModelProfile& profile,
                                                        const Topology& topology,
                                                        const PlannerOptions& options,
                                                        const PlanRestriction& restriction,
                                                        Progress* progress = nullptr);

}  // namespace dapple::planner
