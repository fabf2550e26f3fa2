#include "dapple/exec/replay_backend.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "clock.h"
#include "dapple/core/error.h"

namespace dapple {
namespace {

class ReplayBackend : public Backend {
 public:
  ReplayBackend(const PlanCost& costs, DeviceIndex device, const ReplayPace& pace)
      : costs_(costs), device_(device), pace_(pace) {}

  void take_in(const Action& /*receive*/, const SchedulePeer& /*from*/,
               Payload /*payload*/) override {}
  Payload give_out(const Action& /*send*/, const SchedulePeer& to) override {
    return Payload(static_cast<std::size_t>(to.size.count));
  }
  void compute(const Action& action, const BucketReady& ready) override;
  std::span<float> bucket(const Action& /*reduction*/, Bytes size) override;
  void step(const Action& action) override;

 private:
  const ReplicaCost& replica_of(const StageCost& stage) const;
  Duration length_of(const Action& action) const;
  std::int64_t after(std::int64_t start, StageIndex stage, Duration length) const;

  const PlanCost& costs_;
  const DeviceIndex device_;
  const ReplayPace pace_;
  std::vector<float> bucket_;  // one for all buckets: they are reduced one after another
};

const ReplicaCost& ReplayBackend::replica_of(const StageCost& stage) const {
  const auto here =
      std::find_if(stage.replicas.begin(), stage.replicas.end(),
                   [&](const ReplicaCost& replica) { return replica.device == device_; });
  check(here != stage.replicas.end(), "a device replays a stage of another one");
  return *here;
}

/// Moment at which what the stage began at `start` is over.
std::int64_t ReplayBackend::after(std::int64_t start, StageIndex stage, Duration length) const {
  for (const SlowStage& slow : pace_.slow_stages) {
    if (slow.stage == stage) length = scale_up(length, slow.slowdown);
  }
  return start + scale_up(length, pace_.pace).ns;
}

/// On this device alone, without regard to the stage's slowest.
Duration ReplayBackend::length_of(const Action& action) const {
  const ReplicaCost& replica = replica_of(costs_.stages[action.stage.position()]);
  switch (action.kind) {
    case ActionKind::Forward:
      return replica.forward;
    case ActionKind::Backward:
      return replica.backward;
    case ActionKind::InputGradient:
      return replica.input_gradient;
    case ActionKind::WeightGradient:
      return replica.backward - replica.input_gradient;
    default:
      throw Bug("a replayed computation is none");
  }
}

void ReplayBackend::compute(const Action& action, const BucketReady& ready) {
  const std::int64_t start = monotonic_now();
  const StageCost& stage = costs_.stages[action.stage.position()];
  const Duration length = length_of(action);
  if (ready) {
    const std::vector<Duration>& moments = action.kind == ActionKind::WeightGradient
                                               ? stage.bucket_ready_in_weights
                                               : stage.bucket_ready;
    for (std::size_t k = 0; k < moments.size(); ++k) {
      sleep_until(after(start, action.stage, std::min(moments[k], length)));
      ready(static_cast<std::int32_t>(k));
    }
  }
  sleep_until(after(start, action.stage, length));
}

std::span<float> ReplayBackend::bucket(const Action& /*reduction*/, Bytes size) {
  const auto floats = (static_cast<std::size_t>(size.count) + sizeof(float) - 1) / sizeof(float);
  bucket_.assign(floats, 0.0F);
  return bucket_;
}

void ReplayBackend::step(const Action& action) {
  const std::int64_t start = monotonic_now();
  const StageCost& stage = costs_.stages[action.stage.position()];
  const auto part = static_cast<std::size_t>(action.index);
  sleep_until(after(start, action.stage,
                    stage.bucket_steps.empty() ? stage.optimizer_step : stage.bucket_steps[part]));
}

}  // namespace

std::unique_ptr<Backend> make_replay_backend(const PlanCost& costs, DeviceIndex device,
                                             const ReplayPace& pace) {
  return std::make_unique<ReplayBackend>(costs, device, pace);
}

}  // namespace dapple
