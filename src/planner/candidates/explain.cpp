#include "dapple/planner/candidates/explain.h"

#include <algorithm>

namespace dapple::planner {
namespace {

/// The computation of a plan, in nanoseconds.
struct Work {
  // All computations of all devices together.
  Wide all = 0;
  // The parts of `all` that are recomputation, and collectives beside it.
  Wide recomputation = 0;
  Wide collectives = 0;
  // The computation of the busiest lane.
  Duration busiest;
  // The optimizer steps of that lane's stages.
  Duration step;
};

/// The computation of one lane: on all its devices together (`all` and its parts), and on the
/// slowest (`busy`).
struct LaneWork {
  Wide all = 0;
  Wide recomputation = 0;
  Wide collectives = 0;
  Duration busy;
  Duration step;
};

LaneWork work_of(const Lane& lane, const PlanCost& costs) {
  LaneWork work;
  const auto first = static_cast<std::size_t>(lane.replica);
  // All stages of a lane work on the same micro-batches.
  const std::int64_t micro_batches =
      std::count_if(lane.actions.begin(), lane.actions.end(), [&](const Action& action) {
        return action.kind == ActionKind::Forward && action.stage == lane.stages.front();
      });
  for (const StageIndex index : lane.stages) {
    const StageCost& stage = costs.stages[index.position()];
    for (std::size_t i = first; i < first + lane.devices.size(); ++i) {
      const ReplicaCost& replica = stage.replicas[i];
      work.all += Wide{micro_batches} * (replica.forward + replica.backward).ns;
      work.collectives += Wide{micro_batches} * replica.collectives.ns;
      if (stage.recomputation.ns > 0) {
        work.recomputation += Wide{micro_batches} * replica.forward.ns;
      }
    }
    // The replicas of a split stage start together: the slowest forward, then the slowest backward.
    const bool whole_stage = lane.devices.size() == stage.replicas.size();
    const Duration slowest = whole_stage
                                 ? stage.forward + stage.backward
                                 : stage.replicas[first].forward + stage.replicas[first].backward;
    work.busy += micro_batches * slowest;
    work.step += stage.optimizer_step;
  }
  return work;
}

Work work_of(const PlanCost& costs, const Schedule& schedule) {
  Work work;
  for (const Lane& lane : schedule.lanes) {
    const LaneWork own = work_of(lane, costs);
    work.all += own.all;
    work.recomputation += own.recomputation;
    work.collectives += own.collectives;
    if (own.busy > work.busiest) {
      work.busiest = own.busy;
      work.step = own.step;
    } else if (own.busy == work.busiest) {
      work.step = std::max(work.step, own.step);
    }
  }
  return work;
}

}  // namespace

bool has_reductions(const PlanCost& costs) {
  const auto reduces = [](const AllReduceCost& bucket) {
    return bucket.algorithm != AllReduceAlgorithm::None;
  };
  return !costs.ties.empty() ||
         std::any_of(costs.stages.begin(), costs.stages.end(), [&](const StageCost& stage) {
           return std::any_of(stage.buckets.begin(), stage.buckets.end(), reduces);
         });
}

TimeParts time_parts(const TimedSchedule& timed, const Topology& topology) {
  const Work work = work_of(timed.costs, timed.schedule);
  const Wide devices = topology.device_count();
  TimeParts parts;
  const auto evenly = [&](Wide sum) { return Duration{static_cast<std::int64_t>(sum / devices)}; };
  const Duration once = evenly(work.all - work.recomputation);
  parts.compute = evenly(work.all - work.recomputation - work.collectives);
  parts.collectives = once - parts.compute;
  parts.recomputation = evenly(work.all) - once;
  parts.imbalance = work.busiest - once - parts.recomputation;
  parts.optimizer_step = work.step;
  parts.bubble = timed.alone - work.busiest - work.step;
  parts.transfers = std::max(Duration{}, timed.iteration - timed.without_transfers);
  parts.all_reduce = timed.iteration - timed.alone - parts.transfers;
  return parts;
}

}  // namespace dapple::planner
