// Evaluates candidates: finds good warm-up depths for each by simulation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/planner/candidates/depth_search.h"
#include "dapple/planner/candidates/depths.h"
#include "dapple/planner/candidates/score.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/dapple_search/dapple_search.h"

namespace dapple::planner {

/// The least number of actions of a simulation: a forward and a backward for each stage and
/// micro-batch, not counting transfers.
inline std::int64_t least_actions(std::size_t stages, std::int64_t num_micro_batches) {
  return 2 * static_cast<std::int64_t>(stages) * num_micro_batches;
}
inline std::int64_t least_actions(const search::Candidate& candidate,
                                  std::int64_t global_batch_size) {
  return least_actions(candidate.stages.size(), global_batch_size / candidate.micro_batch_size);
}

/// The bytes that a simulation keeps for each stage pass, without a recorded timeline: the actions
/// in the schedule (two computations, a transfer each way and its receipt), the computations again,
/// what has arrived, and events.
inline constexpr std::int64_t kBytesOfAPass = 6 * sizeof(Action) + 2 * sizeof(Action) + 2 * 8 + 24;
/// The same where the timeline is recorded and sorted.
inline constexpr std::int64_t kBytesOfARecordedPass =
    kBytesOfAPass + 4 * sizeof(TimedAction) * 3 / 2 + kBytesOfAPass;

/// The stage passes of a simulation: one forward and one backward of a micro-batch on a lane, which
/// is a stage or an independent replica.
inline std::int64_t lane_passes(const std::vector<StagePlan>& stages,
                                std::int64_t num_micro_batches, Replicas replicas) {
  std::int64_t lanes = 0;
  for (const StagePlan& stage : stages) {
    lanes += replicas == Replicas::Independent ? static_cast<std::int64_t>(stage.devices.size())
                                               : std::int64_t{1};
  }
  return lanes * num_micro_batches;
}

/// The stage passes of the longest plan that can be simulated and recorded within the memory limit.
inline std::int64_t most_passes(Bytes memory_limit) {
  return std::min(kMaxStagePasses, memory_limit.count / kBytesOfARecordedPass);
}

/// Upper bound on the bytes that the simulation of a plan keeps.
inline Bytes simulation_bytes(const std::vector<StagePlan>& stages, std::int64_t num_micro_batches,
                              Replicas replicas) {
  constexpr std::int64_t kBytesOfADevice = 4096;  // costs, routes and rings
  const std::int64_t devices = lane_passes(stages, 1, Replicas::Independent);
  return {lane_passes(stages, num_micro_batches, replicas) * kBytesOfAPass +
          devices * kBytesOfADevice};
}
inline Bytes simulation_bytes(const search::Candidate& candidate, const PlannerOptions& options) {
  return simulation_bytes(candidate.stages, options.global_batch_size / candidate.micro_batch_size,
                          options.replicas);
}
inline Bytes simulation_bytes(const SimulatedPlan& simulated, const PlannerOptions& options) {
  return simulation_bytes(simulated.plan.stages, simulated.plan.num_micro_batches,
                          options.replicas);
}

/// Returns how many threads can simulate these items at the same time within the memory limit, at
/// least one and at most as many as the options allow. `bytes_of(item)` is what the simulation of
/// one item keeps. The outcome of a search does not depend on this number. O(items).
template <class Items, class BytesOf>
int threads_with_room(const Items& items, const BytesOf& bytes_of, const PlannerOptions& options) {
  // Simulations may take one third of the memory limit.
  constexpr std::int64_t kPartOfSimulations = 3;
  Bytes most{1};
  for (const auto& item : items) most = std::max(most, bytes_of(item));
  const std::int64_t room = options.memory_limit.count / kPartOfSimulations / most.count;
  return static_cast<int>(std::clamp<std::int64_t>(room, 1, std::max(1, options.threads)));
}

/// The bytes that a depth search of the candidate keeps as long as it lasts: the earliest times of
/// each stage pass.
inline Bytes depth_search_bytes(const search::Candidate& candidate,
                                std::int64_t global_batch_size) {
  return {least_actions(candidate, global_batch_size) / 2 * 3 * 8};
}
/// The bytes that the candidate itself takes.
inline Bytes size_of(const search::Candidate& candidate) {
  std::int64_t size = sizeof(search::Candidate);
  for (const StagePlan& stage : candidate.stages) {
    size +=
        static_cast<std::int64_t>(sizeof(StagePlan) + stage.devices.size() * sizeof(DeviceIndex));
  }
  return {size};
}

/// Evaluates candidates of one problem. It has no mutable state, so threads may share one.
class CandidateEvaluator {
 public:
  /// Once `should_stop` returns true, no simulation is started, and running ones are abandoned.
  /// What the context refers to must outlive the evaluator.
  explicit CandidateEvaluator(const PlanningContext& context,
                              std::function<bool()> should_stop = {})
      : context_(context), should_stop_(std::move(should_stop)) {}

  /// Lower bound on the candidate's iteration at any depths, with unlimited memory.
  Duration bound(const search::Candidate& candidate) const;

  /// Simulates the candidate at all legal depths that fit into memory where these are few, else at
  /// the depth families and at depths for several targets. The best plan is infeasible if none fits
  /// or none is faster than `to_beat`. Once `budget` actions, if it is given, are spent, no further
  /// depths are tried, and the candidate is not settled.
  Score score(const search::Candidate& candidate, std::size_t order, Duration to_beat,
              std::optional<std::int64_t> budget = {}) const;

  /// Simulates the candidate like score(), with nothing to beat and half of the budget, and refines
  /// the best depths found with refine().
  Score refine_depths(const search::Candidate& candidate, std::size_t order,
                      std::int64_t budget) const;

  /// Returns a search over all depths of the candidate that has not begun yet.
  std::unique_ptr<DepthSearch> depths_of(const search::Candidate& candidate,
                                         std::size_t order) const;

  /// Moves to neighbouring depths that are faster until there are none or `budget` actions are
  /// spent; ends within a step once twice the budget is spent or many neighbours were tried. The
  /// depths of deep stages are improved by threshold_accepting() instead.
  Score refine(const SimulatedPlan& start, std::int64_t budget) const;

  /// Moves layers between stages and changes depths by threshold accepting, which may pass through
  /// slower plans, until `budget` actions are spent or many changes were tried. Devices stay as
  /// they are. Requires: no stage deals its micro-batches.
  Score refine_stages(const SimulatedPlan& start, std::int64_t budget) const;

  /// Improves the depths by threshold accepting, which may pass through slower plans; returns
  /// `start` where the depths are fixed, there is only one stage, or a stage deals its
  /// micro-batches.
  Score threshold_accepting(const SimulatedPlan& start, std::int64_t budget) const;

 private:
  bool is_stopped() const { return should_stop_ && should_stop_(); }
  Plan plan_of(const search::Candidate& candidate) const;
  bool has_free_depths() const { return context_.options.has_free_depths(); }
  Duration bound_of(const Plan& plan, const PlanCost& cost) const;
  std::vector<Depths> depths_to_try(const Plan& plan, const PlanCost& costs, Duration bound,
                                    const Depths& assumed, bool& are_all) const;
  // Simulates these depths unless a bound shows that they are no faster than `current`, and
  // replaces `current` by a better plan. The costs of the plan are the same at all depths but for
  // its memory. Returns false if the simulation was abandoned.
  bool try_depths(const Depths& depths, const PlanCost& cost, SimulatedPlan& current,
                  Score& score) const;

  const PlanningContext context_;
  std::function<bool()> should_stop_;
};

}  // namespace dapple::planner
