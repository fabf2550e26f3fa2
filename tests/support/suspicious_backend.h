// A backend that knows what it must be told, and a run of a schedule's part with it.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dapple/exec/run/interpreter.h"
#include "job.h"
#include "random_pipeline.h"

namespace dapple::small {

/// What a device has reduced.
using Reduced = std::map<std::tuple<ActionKind, StageIndex, std::int32_t>, std::vector<float>>;

/// Who takes part in a reduction, ascending.
inline std::vector<DeviceIndex> members_of(const Plan& plan, ActionKind kind, StageIndex stage,
                                           std::int32_t index) {
  const std::vector<StageIndex> stages =
      kind == ActionKind::ReduceTied ? plan.tied_gradients[static_cast<std::size_t>(index)].stages
                                     : std::vector<StageIndex>{stage};
  std::set<DeviceIndex> members;
  for (const StageIndex owner : stages) {
    const std::vector<DeviceIndex>& devices = plan.stages[owner.position()].devices;
    members.insert(devices.begin(), devices.end());
  }
  return {members.begin(), members.end()};
}

/// Sends what names sender, action and receiver, and notes what it is told that it should not be.
class SuspiciousBackend : public exec::Backend {
 public:
  explicit SuspiciousBackend(DeviceIndex device) : device_(device) {}

  void take_in(const Action& receive, const SchedulePeer& from, exec::Payload payload) override {
    const bool is_activation = receive.kind == ActionKind::ReceiveActivation;
    const StageIndex stage = is_activation ? receive.stage.previous() : receive.stage.next();
    const ActionKind kind = is_activation ? ActionKind::SendActivation : ActionKind::SendGradient;
    payload.bring_to_host();
    if (!std::ranges::equal(
            std::as_const(payload).host(),
            content({kind, receive.index, stage}, from.device, device_, from.size))) {
      faults.push_back("wrong content at " + to_text(receive));
    }
  }

  exec::Payload give_out(const Action& send, const SchedulePeer& to) override {
    return content(send, device_, to.device, to.size);
  }

  void compute(const Action& action, const exec::BucketReady& ready) override {
    computed.push_back(action);
    if (!ready) return;
    for (std::int32_t k = 0; k < buckets[action.stage]; ++k) ready(k);
  }

  std::vector<std::unique_ptr<exec::ReductionBuffer>> gradients(const Action& reduction,
                                                                Bytes size) override {
    const std::lock_guard lock(mutex_);
    std::vector<float>& values = reduced[{reduction.kind, reduction.stage, reduction.index}];
    const auto floats = static_cast<std::size_t>(size.count) / sizeof(float) + 1;
    values.assign(floats, static_cast<float>(device_.value + 1));
    std::vector<std::unique_ptr<exec::ReductionBuffer>> parts;
    parts.push_back(std::make_unique<exec::HostReductionBuffer>(values));
    return parts;
  }

  void step(const Action& action) override {
    computed.push_back(action);
    const std::lock_guard lock(mutex_);
    stepped_after[action] = reduced.size();
  }

  struct Before {
    bool operator()(const Action& a, const Action& b) const {
      return std::pair(a.stage, a.index) < std::pair(b.stage, b.index);
    }
  };
  std::map<StageIndex, std::int32_t> buckets;
  std::vector<Action> computed;
  Reduced reduced;
  std::map<Action, std::size_t, Before> stepped_after;
  std::vector<std::string> faults;

 private:
  static exec::HostBytes content(const Action& send, DeviceIndex from, DeviceIndex to, Bytes size) {
    const std::string name =
        to_text(send) + " " + std::to_string(from.value) + ">" + std::to_string(to.value) + ";";
    exec::HostBytes bytes(static_cast<std::size_t>(size.count));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(name[i % name.size()]);
    return bytes;
  }

  const DeviceIndex device_;
  std::mutex mutex_;
};

inline std::vector<Action> computations_of(const DeviceSchedule& schedule) {
  std::vector<Action> actions;
  for (const DeviceAction& entry : schedule.actions) {
    if (stream_of(entry.action.kind) == Stream::Compute) actions.push_back(entry.action);
  }
  return actions;
}

inline std::vector<DeviceIndex> devices_of(const std::vector<DeviceSchedule>& schedules) {
  std::vector<DeviceIndex> devices;
  for (const DeviceSchedule& schedule : schedules) devices.push_back(schedule.device);
  return devices;
}

inline void demand(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// What a device sends of activations and gradients, and as its part of the reductions, of which
/// each member sends 2 (r-1)/r: of whole floats, so that a few bytes more or less may pass.
inline void check_sent(const DeviceSchedule& schedule, const SuspiciousBackend& backend,
                       const Plan& plan, Bytes sent) {
  std::int64_t least = 0;
  std::int64_t most = 0;
  for (const DeviceAction& entry : schedule.actions) {
    const Stream stream = stream_of(entry.action.kind);
    if (stream != Stream::SendForward && stream != Stream::SendBackward) continue;
    least += entry.size.count;
    most += entry.size.count;
  }
  for (const auto& [what, values] : backend.reduced) {
    const auto& [kind, stage, index] = what;
    const auto members = static_cast<std::int64_t>(members_of(plan, kind, stage, index).size());
    const auto size = static_cast<std::int64_t>(values.size() * sizeof(float));
    const std::int64_t part = 2 * (members - 1) * size / members;
    const auto slack = static_cast<std::int64_t>(2 * sizeof(float)) * members;
    least += std::max<std::int64_t>(0, part - slack);
    most += members == 1 ? 0 : part + slack;
  }
  demand(sent.count >= least && sent.count <= most, "other bytes were sent than the schedule says");
}

/// One device's part of an iteration. Throws where it is told or does other than it should; the
/// sums that it ended up with.
inline Reduced run_suspiciously(const Pipeline& pipeline, const DeviceSchedule& schedule,
                                exec::Transport& end, std::int64_t iteration) {
  SuspiciousBackend backend(schedule.device);
  for (const StageIndex stage : schedule.stages) {
    backend.buckets[stage] =
        static_cast<std::int32_t>(pipeline.plan.stages[stage.position()].gradient_buckets.size());
  }
  exec::Interpreter interpreter(
      schedule,
      [&](const Action& reduction) {
        return exec::ReductionGroup{
            {members_of(pipeline.plan, reduction.kind, reduction.stage, reduction.index)}};
      },
      backend, end);
  const Bytes before = end.sent();
  const std::vector<exec::MeasuredAction> measured = interpreter.run(iteration);
  demand(backend.faults.empty(), backend.faults.empty() ? "" : backend.faults.front());
  demand(backend.computed == computations_of(schedule), "computed in another order");
  for (const auto& [what, values] : backend.reduced) {
    const auto& [kind, stage, index] = what;
    float sum = 0;
    for (const DeviceIndex member : members_of(pipeline.plan, kind, stage, index)) {
      sum += static_cast<float>(member.value + 1);
    }
    demand(values == std::vector<float>(values.size(), sum), "a sum is not the sum");
  }
  std::size_t actions = 0;
  for (const DeviceAction& entry : schedule.actions) {
    if (stream_of(entry.action.kind) != Stream::None) ++actions;
  }
  demand(measured.size() == actions, "not every action was measured");
  check_sent(schedule, backend, pipeline.plan, end.sent() - before);
  return backend.reduced;
}

}  // namespace dapple::small
