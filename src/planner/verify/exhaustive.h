// Enumerates all plans of a small problem that might be faster than a given time, for the
// verification of lower bounds; docs/bounds.md, section 11.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// The space to search: all splits into stages, device sets, choices of recomputation and depths of
/// one family that satisfy the pins, at every micro-batch size and gradient synchronization listed.
struct ExhaustiveProblem {
  std::int64_t global_batch_size = 1;
  std::vector<std::int64_t> micro_batch_sizes;
  std::vector<GradientSynchronization> gradients;
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  SimulationMode mode = {};
  bool ignore_memory = false;
  Pins pins = {};
  // Whether all stages have the same number of replicas, with equal shares of each micro-batch, and
  // all or none of them recompute.
  bool are_stages_alike = false;
  bool may_recompute = true;
  // Where a runtime cuts the model itself, the layers that begin the stages but the first one, for
  // each number of stages that it has; otherwise empty.
  std::vector<std::vector<std::int32_t>> own_boundaries = {};
  // Whether plans have at least as many micro-batches as stages, or one less.
  bool needs_filled_pipeline = false;
  // Whether replicas may also have shares by speed (CostModel::shares_by_speed()).
  bool shares_by_speed = false;
  // Whether stages may also deal whole micro-batches to their replicas in turn.
  bool may_deal = false;
  // Whether stages may run their computations in any order, in place of that of the family. Plans
  // in an order of their own are not simulated: the search ends at the first one whose bound, which
  // does not depend on the order, is below.
  bool any_order = false;
  // Only plans faster than this are searched for.
  Duration below;
  // The budget in partial plans costed; simulations count as the number that takes as long.
  std::int64_t budget = 0;
};

struct ExhaustiveOutcome {
  // The first plan found that is faster, and its iteration.
  std::optional<Plan> faster;
  Duration iteration;
  // Whether the whole space was searched without finding a plan that is or, in any order, may be
  // faster.
  bool is_through = false;
  // Whether the search was stopped before the budget was spent.
  bool is_stopped = false;
  std::int64_t partial_plans = 0;
  std::int64_t simulated = 0;
};

/// Searches the space until a plan is faster than `below`, the budget is spent, or `progress` says
/// stop. Exponential, up to the budget. Deterministic, unless stopped.
ExhaustiveOutcome search_exhaustively(const ModelProfile& profile, const Topology& topology,
                                      const ExhaustiveProblem& problem, Progress* progress);

}  // namespace dapple::planner
