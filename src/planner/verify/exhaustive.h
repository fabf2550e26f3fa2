// Every plan of a small problem that might be faster than a given time, one after another.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/planner/request/planner.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// The space: all splits, device sets, recomputation and depths of one family, as far as they are
/// as pinned, at every micro-batch size and gradient handling of the lists.
struct ExhaustiveProblem {
  std::int64_t global_batch_size = 1;
  std::vector<std::int64_t> micro_batch_sizes;
  std::vector<GradientSynchronization> gradients;
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  SimulationMode mode = {};
  bool ignore_memory = false;
  Pins pins = {};
  /// All stages have as many replicas as the last one, with equal shares of each micro-batch, and
  /// recompute if it does.
  bool are_stages_alike = false;
  bool may_recompute = true;
  Duration below;           // only plans faster than this are looked for
  std::int64_t budget = 0;  // partial plans costed, or what simulations make of them
};

struct ExhaustiveOutcome {
  std::optional<Plan> faster;  // the first one found
  Duration iteration;          // its own
  bool is_through = false;     // false if the budget was spent before, or it was stopped
  bool is_stopped = false;     // told to stop before the budget was spent
  std::int64_t partial_plans = 0;
  std::int64_t simulated = 0;
};

/// Deterministic, unless stopped; ends with the first plan that is faster than `below`.
ExhaustiveOutcome search_exhaustively(const ModelProfile& profile, const Topology& topology,
                                      const ExhaustiveProblem& problem, Progress* progress);

}  // namespace dapple::planner
