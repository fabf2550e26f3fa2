// One device's part of a replay: decides how long each action takes.
//
// StandIn lets the time pass in place of computations; HostStandIn documents what each of its
// functions has to do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/exec/replay/replay_backend.h"

namespace dapple::exec {

template <class StandIn>
class ReplayBackend : public Backend {
 public:
  ReplayBackend(const ReplayedDevice& device, ReplayPace pace, std::unique_ptr<StandIn> stand_in)
      : costs_(device.costs),
        device_(device.schedule.device),
        pace_(std::move(pace)),
        stand_in_(std::move(stand_in)) {}

  Memory memory() const override { return StandIn::kMemory; }
  Mark mark(Stream stream) override { return stand_in_->mark(stream); }
  std::int64_t moment_of(const Mark& mark) override { return stand_in_->moment_of(mark); }

  void begin(std::int64_t /*iteration*/) override { stand_in_->begin(); }
  void take_in(const Action& /*receive*/, const SchedulePeer& /*from*/, Payload payload) override {
    stand_in_->take_in(std::move(payload));
  }
  Payload give_out(const Action& /*send*/, const SchedulePeer& to) override {
    return stand_in_->give_out(to.size);
  }
  void compute(const Action& action, const BucketReady& ready) override;
  std::vector<std::unique_ptr<ReductionBuffer>> gradients(const Action& /*reduction*/,
                                                          Bytes size) override {
    std::vector<std::unique_ptr<ReductionBuffer>> parts;
    parts.push_back(stand_in_->buffer(size));
    return parts;
  }
  void step(const Action& action) override;

 private:
  const StageCost& stage_of(const Action& action) const {
    return costs_.stages[action.stage.position()];
  }
  Duration length_of(const Action& action) const;
  Duration paced(Duration length, StageIndex stage) const;

  const PlanCost& costs_;
  const DeviceIndex device_;
  const ReplayPace pace_;
  std::unique_ptr<StandIn> stand_in_;
};

/// Returns the length with the slowdown of the stage and the pace applied.
template <class StandIn>
Duration ReplayBackend<StandIn>::paced(Duration length, StageIndex stage) const {
  for (const SlowStage& slow : pace_.slow_stages) {
    if (slow.stage == stage) length = scale_up(length, slow.slowdown);
  }
  return scale_up(length, pace_.pace);
}

/// Returns the action's length on this device itself, not on the stage's slowest replica.
template <class StandIn>
Duration ReplayBackend<StandIn>::length_of(const Action& action) const {
  const std::vector<ReplicaCost>& replicas = stage_of(action).replicas;
  const auto here = std::find_if(replicas.begin(), replicas.end(), [&](const ReplicaCost& replica) {
    return replica.device == device_;
  });
  check(here != replicas.end(), "a device replays a stage of another one");
  switch (action.kind) {
    case ActionKind::Forward:
      return here->forward;
    case ActionKind::Backward:
      return here->backward;
    case ActionKind::InputGradient:
      return here->input_gradient;
    case ActionKind::WeightGradient:
      return here->backward - here->input_gradient;
    default:
      throw Bug("a replayed computation is none");
  }
}

template <class StandIn>
void ReplayBackend<StandIn>::compute(const Action& action, const BucketReady& ready) {
  stand_in_->start();
  const StageCost& stage = stage_of(action);
  const Duration length = length_of(action);
  if (ready) {
    const std::vector<Duration>& moments = action.kind == ActionKind::WeightGradient
                                               ? stage.bucket_ready_in_weights
                                               : stage.bucket_ready;
    for (std::size_t k = 0; k < moments.size(); ++k) {
      stand_in_->pass_until(paced(std::min(moments[k], length), action.stage));
      ready(static_cast<std::int32_t>(k));
    }
  }
  stand_in_->pass_until(paced(length, action.stage));
}

template <class StandIn>
void ReplayBackend<StandIn>::step(const Action& action) {
  stand_in_->await_reductions();
  stand_in_->start();
  const StageCost& stage = stage_of(action);
  const auto part = static_cast<std::size_t>(action.index);
  stand_in_->pass_until(paced(
      stage.bucket_steps.empty() ? stage.optimizer_step : stage.bucket_steps[part], action.stage));
}

}  // namespace dapple::exec
