// How fast a candidate is at its best warm-up depths, by simulation.
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
#include "dapple/planner/request/planner.h"
#include "dapple/search/dapple_search/dapple_search.h"

namespace dapple::planner {

/// That a simulation has at least: a forward and a backward for each stage and micro-batch. What
/// they send comes on top.
inline std::int64_t least_actions(std::size_t stages, std::int64_t num_micro_batches) {
  return 2 * static_cast<std::int64_t>(stages) * num_micro_batches;
}
inline std::int64_t least_actions(const search::Candidate& candidate,
                                  std::int64_t global_batch_size) {
  return least_actions(candidate.stages.size(), global_batch_size / candidate.micro_batch_size);
}

/// Bytes that a simulation keeps for each stage pass while it is not recorded: its actions in the
/// schedule (two computations, a transfer each way and its receipt), its computations again, what
/// has arrived, and events.
inline constexpr std::int64_t kBytesOfAPass = 6 * sizeof(Action) + 2 * sizeof(Action) + 2 * 8 + 24;
/// The same where the timeline is kept and sorted.
inline constexpr std::int64_t kBytesOfARecordedPass =
    kBytesOfAPass + 4 * sizeof(TimedAction) * 3 / 2 + kBytesOfAPass;

/// Computations that a simulation has half of: of each lane, which is a stage, or a replica that
/// starts on its own.
inline std::int64_t lane_passes(const std::vector<StagePlan>& stages,
                                std::int64_t num_micro_batches, Replicas replicas) {
  std::int64_t lanes = 0;
  for (const StagePlan& stage : stages) {
    lanes += replicas == Replicas::Independent ? static_cast<std::int64_t>(stage.devices.size())
                                               : std::int64_t{1};
  }
  return lanes * num_micro_batches;
}

/// Passes of the longest plan that can be simulated and shown within the memory limit.
inline std::int64_t most_passes(Bytes memory_limit) {
  return std::min(kMaxStagePasses, memory_limit.count / kBytesOfARecordedPass);
}

/// What simulating a plan keeps at most.
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
inline Bytes simulation_bytes(const SimulatedPlan& scored, const PlannerOptions& options) {
  return simulation_bytes(scored.plan.stages, scored.plan.num_micro_batches, options.replicas);
}

/// As many threads as have room to simulate any of these at a time; `bytes_of(item)` is what one
/// takes. The outcome does not depend on it. O(items).
template <class Items, class BytesOf>
int threads_with_room(const Items& items, const BytesOf& bytes_of, const PlannerOptions& options) {
  constexpr std::int64_t kPartOfSimulations = 3;  // of the memory limit, one of so many
  Bytes most{1};
  for (const auto& item : items) most = std::max(most, bytes_of(item));
  const std::int64_t room = options.memory_limit.count / kPartOfSimulations / most.count;
  return static_cast<int>(std::clamp<std::int64_t>(room, 1, std::max(1, options.threads)));
}

/// What a search of its depths keeps as long as it lasts: when each pass ends at the earliest.
inline Bytes depth_search_bytes(const search::Candidate& candidate,
                                std::int64_t global_batch_size) {
  return {least_actions(candidate, global_batch_size) / 2 * 3 * 8};
}
/// Itself.
inline Bytes size_of(const search::Candidate& candidate) {
  std::int64_t size = sizeof(search::Candidate);
  for (const StagePlan& stage : candidate.stages) {
    size +=
        static_cast<std::int64_t>(sizeof(StagePlan) + stage.devices.size() * sizeof(DeviceIndex));
  }
  return {size};
}

/// Scores candidates of one problem. Const and without state, so threads may share one.
class CandidateEvaluator {
 public:
  /// Once `should_stop` says so, nothing is simulated any more, and what is being simulated is
  /// given up.
  CandidateEvaluator(const ModelProfile& profile, const Topology& topology,
                     const PlannerOptions& options, std::function<bool()> should_stop = {})
      : profile_(profile),
        topology_(topology),
        options_(options),
        should_stop_(std::move(should_stop)) {}

  /// No depths make it faster, however much memory there is.
  Duration bound(const search::Candidate& candidate) const;

  /// The best of all legal depths that memory allows where these are few, else of the depth
  /// families. Infeasible if none fits or is faster than `to_beat`. No further depths are tried
  /// once `budget` actions are spent; the candidate is not settled then.
  Score score(const search::Candidate& candidate, std::size_t order, Duration to_beat,
              std::int64_t budget = INT64_MAX) const;

  /// The best of the depth families, whatever is to be beaten, then steps from there.
  Score refine_depths(const search::Candidate& candidate, std::size_t order,
                      std::int64_t budget) const;

  /// All its depths, yet to be gone through.
  std::unique_ptr<DepthSearch> depths_of(const search::Candidate& candidate,
                                         std::size_t order) const;

  /// Steps to a faster neighbour's depths until there is none or `budget` actions are spent, or
  /// twice that within a step, or so many neighbours were ruled out without being simulated.
  Score refine(const SimulatedPlan& start, std::int64_t budget) const;

  /// The same by changes that may at first make it slower.
  Score threshold_accepting(const SimulatedPlan& start, std::int64_t budget) const;

 private:
  bool is_stopped() const { return should_stop_ && should_stop_(); }
  Plan plan_of(const search::Candidate& candidate) const;
  bool has_free_depths() const {
    return options_.family != ScheduleFamily::GPipe && !options_.pins.least_depths;
  }
  Duration bound_of(const Plan& plan, const PlanCost& cost) const;
  std::vector<Depths> depths_to_try(const Plan& plan, const PlanCost& costs, Duration bound,
                                    bool& are_all) const;
  /// Whether it was not given up.
  bool try_depths(const Depths& depths, const CostModel& costs, SimulatedPlan& current,
                  Score& score) const;

  const ModelProfile& profile_;
  const Topology& topology_;
  const PlannerOptions& options_;
  std::function<bool()> should_stop_;
};

}  // namespace dapple::planner
