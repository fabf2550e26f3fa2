#include <algorithm>

#include "dapple/core/parallel.h"
#include "dapple/schedule/schedule.h"
#include "schedule/interleave.h"

namespace dapple {
namespace {

/// Appends the actions of one lane: each computation with its receive and its send.
class LaneWriter {
 public:
  LaneWriter(const Plan& plan, std::size_t number, Lane& lane);

  void write();

 private:
  void one_forward_one_backward(std::int64_t depth);
  void interleaved();
  void breadth_first();
  void in_order(const std::vector<Action>& order);

  void forward(StageIndex stage, std::int64_t ordinal);
  void backward(StageIndex stage, std::int64_t ordinal, ActionKind kind = ActionKind::Backward);
  void weight_gradient(StageIndex stage, std::int64_t ordinal);
  /// Counts the weight gradients that a stage has computed; after the last, appends the reductions.
  void gradients_made(StageIndex stage);

  void append(ActionKind kind, std::int32_t index, StageIndex stage) {
    lane_.actions.push_back({.kind = kind, .index = index, .stage = stage});
  }
  const StagePlan& plan_of(StageIndex stage) const { return plan_.stages[stage.position()]; }
  bool is_first(StageIndex stage) const { return stage.value == 0; }
  bool is_last(StageIndex stage) const { return stage.position() + 1 == plan_.stages.size(); }

  /// Returns the micro-batch that the lane processes as its `ordinal`-th.
  std::int32_t micro_batch(std::int64_t ordinal) const {
    const std::int64_t first = step_ == 1 ? 0 : lane_.replica;
    return static_cast<std::int32_t>(first + ordinal * step_);
  }

  const Plan& plan_;
  // The lane's position in the schedule.
  std::size_t number_;
  Lane& lane_;
  // The number of micro-batches of the lane, and the distance from one of them to the next.
  std::int64_t count_ = 0;
  std::int64_t step_ = 1;
  // Per stage of the lane, the micro-batches whose weight gradients are still to be computed.
  std::vector<std::int64_t> gradients_left_;
  // The stages in the order in which their gradients are complete.
  std::vector<StageIndex> reduced_;
};

LaneWriter::LaneWriter(const Plan& plan, std::size_t number, Lane& lane)
    : plan_(plan), number_(number), lane_(lane) {
  const StagePlan& stage = plan_of(lane.stages.front());
  count_ = micro_batches_of(plan, stage, static_cast<std::size_t>(lane.replica));
  step_ = lane.dealt_to;
  gradients_left_.assign(lane.stages.size(), count_);
}

void LaneWriter::write() {
  std::size_t length = 0;
  for (const StageIndex stage : lane_.stages) {
    const std::int64_t per_micro_batch = 3 + (is_first(stage) ? 0 : 2) + (is_last(stage) ? 0 : 2);
    length += static_cast<std::size_t>(count_ * per_micro_batch) +
              plan_of(stage).gradient_buckets.size() +
              static_cast<std::size_t>(optimizer_steps(plan_, stage));
  }
  const std::vector<std::int32_t> ties = ties_of(plan_, lane_.stages);
  lane_.actions.reserve(length + ties.size());
  const StageIndex stage = lane_.stages.front();
  switch (plan_.family) {
    case ScheduleFamily::GPipe:
    case ScheduleFamily::BreadthFirst:
      breadth_first();
      break;
    case ScheduleFamily::OneFOneB:
      one_forward_one_backward(std::min(plan_.warmup_depths[stage.position()], count_));
      break;
    case ScheduleFamily::Interleaved:
      interleaved();
      break;
    case ScheduleFamily::ListScheduled:
    case ScheduleFamily::ZeroBubbleH1:
    case ScheduleFamily::ZeroBubbleH2:
    case ScheduleFamily::ZeroBubbleV:
    case ScheduleFamily::Given:
      in_order(plan_.order[number_]);
      break;
  }
  for (const std::int32_t tie : ties) {
    const TiedGradients& tied = plan_.tied_gradients[static_cast<std::size_t>(tie)];
    append(ActionKind::ReduceTied, tie, representative_stage(tied, lane_.stages));
  }
  for (const StageIndex reduced : reduced_) {
    const std::int32_t steps = optimizer_steps(plan_, reduced);
    for (std::int32_t k = 0; k < steps; ++k) append(ActionKind::OptimizerStep, k, reduced);
  }
}

void LaneWriter::one_forward_one_backward(std::int64_t depth) {
  const StageIndex stage = lane_.stages.front();
  for (std::int64_t i = 0; i < depth; ++i) forward(stage, i);
  for (std::int64_t i = 0; i < count_; ++i) {
    backward(stage, i);
    if (depth + i < count_) forward(stage, depth + i);
  }
}

void LaneWriter::breadth_first() {
  for (const StageIndex stage : lane_.stages) {
    for (std::int64_t i = 0; i < count_; ++i) forward(stage, i);
  }
  for (auto stage = lane_.stages.rbegin(); stage != lane_.stages.rend(); ++stage) {
    for (std::int64_t i = 0; i < count_; ++i) backward(*stage, i);
  }
}

void LaneWriter::interleaved() {
  const auto groups = static_cast<std::int64_t>(plan_.stages.size()) / plan_.chunks_per_device;
  const InterleavedTurns turns({.groups = groups,
                                .chunks = plan_.chunks_per_device,
                                .micro_batches = plan_.num_micro_batches});
  const std::int64_t all = turns.count();
  const std::int64_t warm_up = turns.warm_up(lane_.stages.front().value);
  const auto stage_of = [&](std::int64_t chunk) {
    return lane_.stages[static_cast<std::size_t>(chunk)];
  };
  const auto forward_turn = [&](std::int64_t k) {
    const InterleavedTurns::Turn turn = turns.at(k);
    forward(stage_of(turn.chunk), turn.micro_batch);
  };
  for (std::int64_t k = 0; k < warm_up; ++k) forward_turn(k);
  for (std::int64_t k = 0; k < all; ++k) {
    if (warm_up + k < all) forward_turn(warm_up + k);
    const InterleavedTurns::Turn turn = turns.at(k);
    backward(stage_of(plan_.chunks_per_device - 1 - turn.chunk), turn.micro_batch);
  }
}

void LaneWriter::in_order(const std::vector<Action>& order) {
  for (const Action& action : order) {
    const std::int64_t ordinal = action.index;
    switch (action.kind) {
      case ActionKind::Forward:
        forward(action.stage, ordinal);
        break;
      case ActionKind::Backward:
      case ActionKind::InputGradient:
        backward(action.stage, ordinal, action.kind);
        break;
      case ActionKind::WeightGradient:
        weight_gradient(action.stage, ordinal);
        break;
      default:
        throw Bug("a plan's order holds more than computations");
    }
  }
}

void LaneWriter::forward(StageIndex stage, std::int64_t ordinal) {
  const std::int32_t index = micro_batch(ordinal);
  if (!is_first(stage)) append(ActionKind::ReceiveActivation, index, stage);
  append(ActionKind::Forward, index, stage);
  if (!is_last(stage)) append(ActionKind::SendActivation, index, stage);
}

void LaneWriter::backward(StageIndex stage, std::int64_t ordinal, ActionKind kind) {
  const std::int32_t index = micro_batch(ordinal);
  if (!is_last(stage)) append(ActionKind::ReceiveGradient, index, stage);
  append(kind, index, stage);
  if (!is_first(stage)) append(ActionKind::SendGradient, index, stage);
  if (makes_weight_gradient(kind)) gradients_made(stage);
}

void LaneWriter::weight_gradient(StageIndex stage, std::int64_t ordinal) {
  append(ActionKind::WeightGradient, micro_batch(ordinal), stage);
  gradients_made(stage);
}

void LaneWriter::gradients_made(StageIndex stage) {
  const auto chunk = std::lower_bound(lane_.stages.begin(), lane_.stages.end(), stage);
  if (chunk == lane_.stages.end() || *chunk != stage) return;  // validate() reports it
  if (--gradients_left_[static_cast<std::size_t>(chunk - lane_.stages.begin())] != 0) return;
  const auto buckets = static_cast<std::int32_t>(plan_of(stage).gradient_buckets.size());
  for (std::int32_t k = 0; k < buckets; ++k) append(ActionKind::AllReduce, k, stage);
  reduced_.push_back(stage);
}

/// Returns by how much an action changes the number of micro-batches in flight.
std::int64_t flight_change(ActionKind kind) {
  if (kind == ActionKind::Forward) return 1;
  return makes_weight_gradient(kind) ? -1 : 0;
}

}  // namespace

std::int32_t optimizer_steps(const Plan& plan, StageIndex stage) {
  const auto buckets =
      static_cast<std::int32_t>(plan.stages[stage.position()].gradient_buckets.size());
  if (plan.gradients.optimizer == OptimizerTiming::AtEnd) return 1;
  return std::max(1, buckets) + (ties_of(plan, {stage}).empty() ? 0 : 1);
}

std::vector<std::int64_t> most_in_flight(const Schedule& schedule, std::size_t stages) {
  std::vector<std::int64_t> in_flight(stages, 0);
  std::vector<std::int64_t> most(stages, 0);
  for (const Lane& lane : schedule.lanes) {
    // Each lane of a dealt stage is counted separately.
    for (const StageIndex stage : lane.stages) in_flight[stage.position()] = 0;
    for (const Action& action : lane.actions) {
      const std::size_t stage = action.stage.position();
      in_flight[stage] += flight_change(action.kind);
      most[stage] = std::max(most[stage], in_flight[stage]);
    }
  }
  return most;
}

void fill_depths(Plan& plan) {
  plan.warmup_depths = most_in_flight(generate(plan), plan.stages.size());
  // GPipe has all micro-batches of the stage in flight, even if its replicas are dealt a share
  // each.
  if (plan.family == ScheduleFamily::GPipe) {
    plan.warmup_depths.assign(plan.stages.size(), plan.num_micro_batches);
  }
}

Schedule outline(const Plan& plan) {
  Schedule schedule;
  schedule.num_micro_batches = plan.num_micro_batches;
  for (const std::vector<StageIndex>& stages : stages_by_device_group(plan)) {
    const StagePlan& first = plan.stages[stages.front().position()];
    const bool is_dealt = first.replication == Replication::Deal;
    const std::size_t lanes = is_dealt ? first.devices.size() : 1;
    for (std::size_t replica = 0; replica < lanes; ++replica) {
      Lane lane;
      lane.stages = stages;
      lane.replica = static_cast<std::int32_t>(replica);
      lane.dealt_to = static_cast<std::int32_t>(lanes);
      lane.samples = {0, plan.micro_batch_size};
      lane.devices = is_dealt ? std::vector<DeviceIndex>{first.devices[replica]} : first.devices;
      schedule.lanes.push_back(std::move(lane));
    }
  }
  return schedule;
}

void generate_actions(const Plan& plan, std::size_t number, Lane& lane) {
  lane.actions.clear();
  LaneWriter(plan, number, lane).write();
}

namespace {

Schedule replicas_together(const Plan& plan) {
  Schedule schedule = outline(plan);
  constexpr std::size_t kFewPasses = 100'000;
  constexpr int kLanesSideBySide = 2;
  const bool is_long =
      plan.stages.size() * static_cast<std::size_t>(plan.num_micro_batches) > kFewPasses;
  parallel_for(schedule.lanes.size(), is_long ? kLanesSideBySide : 1,
               [&](std::size_t i) { generate_actions(plan, i, schedule.lanes[i]); });
  return schedule;
}

/// Returns a schedule in which every replica of a split stage has a lane with its own samples.
Schedule replicas_apart(const Schedule& together, const Plan& plan) {
  Schedule schedule;
  schedule.num_micro_batches = together.num_micro_batches;
  for (const Lane& lane : together.lanes) {
    const std::size_t replicas = lane.devices.size();
    const StagePlan& stage = plan.stages[lane.stages.front().position()];
    for (std::size_t i = 0; i < replicas; ++i) {
      Lane& apart = schedule.lanes.emplace_back(lane);
      if (replicas == 1) continue;
      apart.replica = static_cast<std::int32_t>(i);
      apart.samples = samples_of(plan, stage, i);
      apart.devices = {lane.devices[i]};
    }
  }
  return schedule;
}

}  // namespace

Schedule generate(const Plan& plan, Replicas replicas) {
  Schedule together = replicas_together(plan);
  return replicas == Replicas::Together ? together : replicas_apart(together, plan);
}

}  // namespace dapple
