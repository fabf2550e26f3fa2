#include <algorithm>

#include "dapple/schedule/schedule.h"

namespace dapple {
namespace {

/// Appends the actions of one lane, each computation with the communication around it.
class LaneWriter {
 public:
  LaneWriter(const Plan& plan, Lane& lane) : plan_(plan), lane_(lane) {}

  void write();

 private:
  void one_forward_one_backward(std::int64_t depth);
  void forward(std::int64_t ordinal);
  void backward(std::int64_t ordinal);
  void reduce_and_step();

  void append(ActionKind kind, std::int32_t index) {
    lane_.actions.push_back({.kind = kind, .index = index});
  }
  const StagePlan& stage() const { return plan_.stages[lane_.stage.position()]; }
  bool is_first() const { return lane_.stage.value == 0; }
  bool is_last() const { return lane_.stage.position() + 1 == plan_.stages.size(); }

  /// Micro-batch that the lane works on as its `ordinal`-th.
  std::int32_t micro_batch(std::int64_t ordinal) const {
    const std::int64_t step = stage().replication == Replication::Deal
                                  ? static_cast<std::int64_t>(stage().devices.size())
                                  : 1;
    return static_cast<std::int32_t>(lane_.replica + ordinal * step);
  }

  const Plan& plan_;
  Lane& lane_;
  std::int64_t count_ = 0;  // of the lane's own micro-batches
};

void LaneWriter::write() {
  count_ = micro_batches_of(plan_, stage(), static_cast<std::size_t>(lane_.replica));
  const std::int64_t per_micro_batch = is_first() && is_last()   ? 2
                                       : is_first() || is_last() ? 4
                                                                 : 6;
  lane_.actions.reserve(static_cast<std::size_t>(count_ * per_micro_batch) +
                        stage().gradient_buckets.size() + 1);
  switch (plan_.family) {
    case ScheduleFamily::GPipe:
      for (std::int64_t i = 0; i < count_; ++i) forward(i);
      for (std::int64_t i = 0; i < count_; ++i) backward(i);
      break;
    case ScheduleFamily::OneFOneB:
      one_forward_one_backward(std::min(plan_.warmup_depths[lane_.stage.position()], count_));
      break;
  }
  reduce_and_step();
}

void LaneWriter::one_forward_one_backward(std::int64_t depth) {
  for (std::int64_t i = 0; i < depth; ++i) forward(i);
  for (std::int64_t i = 0; i < count_; ++i) {
    backward(i);
    if (depth + i < count_) forward(depth + i);
  }
}

void LaneWriter::forward(std::int64_t ordinal) {
  const std::int32_t index = micro_batch(ordinal);
  if (!is_first()) append(ActionKind::ReceiveActivation, index);
  append(ActionKind::Forward, index);
  if (!is_last()) append(ActionKind::SendActivation, index);
}

void LaneWriter::backward(std::int64_t ordinal) {
  const std::int32_t index = micro_batch(ordinal);
  if (!is_last()) append(ActionKind::ReceiveGradient, index);
  append(ActionKind::Backward, index);
  if (!is_first()) append(ActionKind::SendGradient, index);
}

void LaneWriter::reduce_and_step() {
  const auto buckets = static_cast<std::int32_t>(stage().gradient_buckets.size());
  for (std::int32_t bucket = 0; bucket < buckets; ++bucket) append(ActionKind::AllReduce, bucket);
  append(ActionKind::OptimizerStep, 0);
}

}  // namespace

Schedule generate(const Plan& plan) {
  Schedule schedule;
  schedule.num_micro_batches = plan.num_micro_batches;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    const bool is_dealt = stage.replication == Replication::Deal;
    const std::size_t lanes = is_dealt ? stage.devices.size() : 1;
    for (std::size_t replica = 0; replica < lanes; ++replica) {
      Lane lane;
      lane.stage = index_at<StageIndex>(s);
      lane.replica = static_cast<std::int32_t>(replica);
      lane.devices = is_dealt ? std::vector<DeviceIndex>{stage.devices[replica]} : stage.devices;
      LaneWriter(plan, lane).write();
      schedule.lanes.push_back(std::move(lane));
    }
  }
  return schedule;
}

}  // namespace dapple
