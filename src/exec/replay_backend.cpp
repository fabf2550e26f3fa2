#include "dapple/exec/replay_backend.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "clock.h"
#include "dapple/core/error.h"

namespace dapple {
namespace {

/// As many numbers as a bucket has, which nobody wants to know: nothing holds or adds them.
class NoGradients : public Summands {
 public:
  explicit NoGradients(Bytes size)
      : size_((static_cast<std::size_t>(size.count) + sizeof(float) - 1) / sizeof(float)) {}
  std::size_t size() const override { return size_; }
  Payload give_out(NumberRange range) override { return HostBytes(range.size() * sizeof(float)); }
  void add(NumberRange /*range*/, Payload /*payload*/) override {}
  void replace(NumberRange /*range*/, Payload /*payload*/) override {}

 private:
  std::size_t size_;
};

class ReplayBackend : public Backend {
 public:
  ReplayBackend(const PlanCost& costs, DeviceIndex device, const ReplayPace& pace)
      : costs_(costs), device_(device), pace_(pace) {}

  void take_in(const Action& /*receive*/, const SchedulePeer& /*from*/,
               Payload /*payload*/) override {}
  Payload give_out(const Action& /*send*/, const SchedulePeer& to) override {
    return HostBytes(static_cast<std::size_t>(to.size.count));
  }
  void compute(const Action& action, const BucketReady& ready) override;
  std::unique_ptr<Summands> gradients(const Action& /*reduction*/, Bytes size) override {
    return std::make_unique<NoGradients>(size);
  }
  void step(const Action& action) override;

 private:
  const ReplicaCost& replica_of(const StageCost& stage) const;
  Duration length_of(const Action& action) const;
  std::int64_t after(std::int64_t start, StageIndex stage, Duration length) const;

  const PlanCost& costs_;
  const DeviceIndex device_;
  const ReplayPace pace_;
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
