#include "dapple/simulate/lane_scheduler.h"

namespace dapple::simulate {

LaneScheduler::LaneScheduler(const Schedule& schedule, const PlanCost& costs)
    : slowdown_(costs.overlap_slowdown),
      may_slow_down_(costs.overlap_slowdown != kOne),
      chunk_of_stage_(costs.stages.size()) {
  lanes_.reserve(schedule.lanes.size());
  for (const Lane& source : schedule.lanes) {
    LaneState& lane = lanes_.emplace_back();
    lane.dealt_to = source.dealt_to;
    for (const StageIndex stage : source.stages) {
      chunk_of_stage_[stage.position()] = lane.chunks.size();
      lane.chunks.push_back(make_chunk(source, stage, schedule.num_micro_batches, costs));
    }
    lane.actions = &source.actions;
    lane.skip_communication();
  }
}

LaneScheduler::Inputs LaneScheduler::make_inputs(std::int64_t senders, std::int64_t micro_batches) {
  const auto count = static_cast<std::size_t>(micro_batches);
  Inputs inputs;
  inputs.here.assign(count, senders == 0 ? Duration{} : Duration::infinite());
  if (senders > 1) {
    inputs.several.assign(count, {.left = static_cast<std::int32_t>(senders), .latest = {}});
  }
  return inputs;
}

LaneScheduler::Chunk LaneScheduler::make_chunk(const Lane& source, StageIndex stage,
                                               std::int64_t micro_batches, const PlanCost& costs) {
  const StageCost& cost = costs.stages[stage.position()];
  const ReplicaCost& replica = cost.replicas[static_cast<std::size_t>(source.replica)];
  const bool whole_stage = source.devices.size() == cost.replicas.size();
  // Micro-batches are dealt to the replicas in turn, from replica 0 on.
  const std::int64_t first = source.dealt_to == 1 ? 0 : source.replica;
  const std::int64_t own = (micro_batches - first + source.dealt_to - 1) / source.dealt_to;
  Chunk chunk;
  chunk.cost = &cost;
  chunk.forward = whole_stage ? cost.forward : replica.forward;
  chunk.backward = whole_stage ? cost.backward : replica.backward;
  chunk.input_gradient = whole_stage ? cost.input_gradient : replica.input_gradient;
  chunk.weight_gradient =
      whole_stage ? cost.weight_gradient : replica.backward - replica.input_gradient;
  const bool is_apart = !whole_stage && source.dealt_to == 1;
  const BucketMoments* moments = is_apart ? &cost.moments[replica.moments] : nullptr;
  chunk.bucket_ready = is_apart ? &moments->in_backward : &cost.bucket_ready;
  chunk.bucket_ready_in_weights = is_apart ? &moments->in_weights : &cost.bucket_ready_in_weights;
  std::int64_t before = stage.value == 0 ? 0 : 1;
  std::int64_t behind = stage.position() + 1 == costs.stages.size() ? 0 : 1;
  for (const SkipCost& skip : costs.skips) {
    if (skip.to == stage) ++before;
    if (skip.from == stage) ++behind;
  }
  chunk.activations = make_inputs(before, own);
  chunk.gradients = make_inputs(behind, own);
  chunk.weight_gradients_left = static_cast<std::int32_t>(own);
  return chunk;
}

LaneScheduler::Milestone LaneScheduler::pass_milestone(LaneIndex index, Duration now) {
  LaneState& lane = lanes_[index.position()];
  const std::size_t bucket = lane.milestone++;
  return {bucket, forecast_from(lane, now)};
}

std::optional<LaneScheduler::Forecast> LaneScheduler::set_reducing(LaneIndex index, bool reducing,
                                                                   Duration now) {
  LaneState& lane = lanes_[index.position()];
  if (lane.reducing == reducing) return std::nullopt;
  const std::int64_t speed = speed_of(lane);
  lane.reducing = reducing;
  if (!may_slow_down_ || !lane.busy) return std::nullopt;
  lane.work_left = std::max<Wide>(0, lane.work_left - Wide{(now - lane.work_since).ns} * speed);
  lane.work_since = now;
  return forecast(lane);
}

/// Returns the work between the last milestone that was passed, or the start, and the next, or the
/// end.
Wide LaneScheduler::work_to_milestone(const LaneState& lane) const {
  const Action& action = lane.computation();
  const Chunk& chunk = chunk_of(lane, action.stage);
  const std::vector<Duration>& ready = action.kind == ActionKind::WeightGradient
                                           ? *chunk.bucket_ready_in_weights
                                           : *chunk.bucket_ready;
  const Duration length = length_of(lane, action);
  // A dealt replica may be faster than the slowest one, to which the stage's moments refer.
  const auto moment = [&](std::size_t milestone) {
    return milestone < lane.milestones ? std::min(ready[milestone], length) : length;
  };
  const Duration from = lane.milestone == 0 ? Duration{} : moment(lane.milestone - 1);
  return Wide{(moment(lane.milestone) - from).ns} * slowdown_.billionths;
}

LaneScheduler::Forecast LaneScheduler::forecast_from(LaneState& lane, Duration now) const {
  lane.work_left = work_to_milestone(lane);
  lane.work_since = now;
  return forecast(lane);
}

LaneScheduler::Forecast LaneScheduler::forecast(LaneState& lane) const {
  const Duration needed{divide_up(lane.work_left, speed_of(lane))};
  return {lane.work_since + needed, ++lane.version};
}

}  // namespace dapple::simulate
