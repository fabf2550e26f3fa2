#include "dapple/simulate/lane_scheduler.h"

#include <algorithm>

namespace dapple::simulate {
namespace {

NicUse least(const NicUse& a, const NicUse& b) {
  return {std::min(a.time, b.time), std::min(a.busy, b.busy)};
}

PassTraffic least(const PassTraffic& a, const PassTraffic& b) {
  return {least(a.in_turn, b.in_turn), least(a.beside, b.beside)};
}

StageTraffic least(const StageTraffic& a, const StageTraffic& b) {
  return {least(a.forward, b.forward), least(a.backward, b.backward),
          least(a.input_gradient, b.input_gradient), least(a.weight_gradient, b.weight_gradient)};
}

void lower_to(std::vector<PassTraffic>& all, const std::vector<PassTraffic>& others) {
  if (all.empty()) all = others;
  for (std::size_t k = 0; k < all.size(); ++k) all[k] = least(all[k], others[k]);
}

}  // namespace

LaneScheduler::LaneScheduler(const Schedule& schedule, const PlanCost& costs,
                             bool shares_collectives)
    : slowdown_(costs.overlap_slowdown),
      may_slow_down_(costs.overlap_slowdown != kOne),
      shares_collectives_(shares_collectives),
      chunk_of_stage_(costs.stages.size()) {
  lanes_.reserve(schedule.lanes.size());
  for (const Lane& source : schedule.lanes) {
    LaneState& lane = lanes_.emplace_back();
    lane.dealt_to = source.dealt_to;
    for (const StageIndex stage : source.stages) {
      chunk_of_stage_[stage.position()] = lane.chunks.size();
      lane.chunks.push_back(make_chunk(source, stage, schedule.num_micro_batches, costs));
      if (shares_collectives) add_traffic(source, lane.chunks.back());
    }
    lane.actions = &source.actions;
    lane.skip_communication();
  }
}

void LaneScheduler::sum_up_rest() {
  // Whether lane s is all of stage s.
  bool is_pipeline = lanes_.size() == chunk_of_stage_.size();
  for (const LaneState& lane : lanes_) {
    is_pipeline = is_pipeline && lane.chunks.size() == 1 && lane.dealt_to == 1;
  }
  // The least time from the start of the last gradient of the stage in front to the end. It waits
  // for the last gradient of this stage, or comes behind the one that does.
  Duration after_last_gradient;
  for (LaneState& lane : lanes_) {
    lane.rest.resize(lane.actions->size());
    Duration rest;
    bool has_gradient = false;
    Duration from_last_gradient;
    for (std::size_t i = lane.actions->size(); i-- > 0;) {
      const Action& action = (*lane.actions)[i];
      if (stream_of(action.kind) == Stream::Compute) {
        const Duration length = length_of(lane, action);
        rest += length;
        if (is_pipeline && !has_gradient && makes_input_gradient(action.kind)) {
          has_gradient = true;
          rest = std::max(rest, length + after_last_gradient);
          from_last_gradient = rest;
        }
      }
      lane.rest[i] = rest;
    }
    after_last_gradient = from_last_gradient;
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

/// Adds the collectives that all replicas of the lane have at the same time: the least of theirs.
void LaneScheduler::add_traffic(const Lane& source, Chunk& chunk) {
  const StageCost& cost = *chunk.cost;
  const bool is_whole = source.devices.size() == cost.replicas.size();
  const auto own = static_cast<std::size_t>(source.replica);
  chunk.traffic = cost.replicas[is_whole ? 0 : own].traffic;
  for (const ReplicaCost& replica : cost.replicas) {
    if (is_whole) chunk.traffic = least(chunk.traffic, replica.traffic);
    // The moments of a dealt replica are those of the whole stage.
    const bool counts = is_whole || source.dealt_to > 1 || &replica == &cost.replicas[own];
    if (!counts || cost.moments.empty()) continue;
    const BucketMoments& moments = cost.moments[replica.moments];
    lower_to(chunk.traffic_before_bucket, moments.traffic_in_backward);
    lower_to(chunk.traffic_before_bucket_in_weights, moments.traffic_in_weights);
  }
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
  if (!may_slow_down_ || !lane.busy || lane.has_computed) return std::nullopt;
  lane.work_left = std::max<Wide>(0, lane.work_left - Wide{(now - lane.work_since).ns} * speed);
  lane.work_since = now;
  return forecast(lane);
}

/// Returns the time between the last milestone that was passed, or the start, and the next, or the
/// end, where nothing slows the lane down.
Duration LaneScheduler::length_to_milestone(const LaneState& lane) const {
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
  return moment(lane.milestone) - from;
}

/// Returns the collectives in a piece of that length, no more than it has room for.
PassTraffic LaneScheduler::traffic_to_milestone(const LaneState& lane, Duration length) const {
  const Action& action = lane.computation();
  const Chunk& chunk = chunk_of(lane, action.stage);
  PassTraffic whole;
  if (action.kind == ActionKind::Forward) whole = chunk.traffic.forward;
  if (action.kind == ActionKind::Backward) whole = chunk.traffic.backward;
  if (action.kind == ActionKind::InputGradient) whole = chunk.traffic.input_gradient;
  if (action.kind == ActionKind::WeightGradient) whole = chunk.traffic.weight_gradient;
  const std::vector<PassTraffic>& before = action.kind == ActionKind::WeightGradient
                                               ? chunk.traffic_before_bucket_in_weights
                                               : chunk.traffic_before_bucket;
  const auto until = [&](std::size_t milestone) {
    return milestone < lane.milestones && !before.empty() ? before[milestone] : whole;
  };
  PassTraffic piece = until(lane.milestone);
  if (lane.milestone > 0) piece = piece - until(lane.milestone - 1);
  const auto limit = [](NicUse& use, Duration most) {
    use.time = std::clamp(use.time, Duration{}, most);
    use.busy = std::clamp(use.busy, Duration{}, use.time);
  };
  limit(piece.in_turn, length);
  limit(piece.beside, length - piece.in_turn.time);
  return piece;
}

LaneScheduler::Forecast LaneScheduler::forecast_from(LaneState& lane, Duration now) const {
  Duration length = length_to_milestone(lane);
  if (shares_collectives_) {
    lane.has_computed = false;
    lane.traffic = traffic_to_milestone(lane, length);
    length -= lane.traffic.in_turn.time;
  }
  lane.work_left = Wide{length.ns} * slowdown_.billionths;
  lane.work_since = now;
  return forecast(lane);
}

LaneScheduler::Forecast LaneScheduler::forecast(LaneState& lane) const {
  const Duration needed{divide_up(lane.work_left, speed_of(lane))};
  return {lane.work_since + needed, ++lane.version};
}

}  // namespace dapple::simulate
