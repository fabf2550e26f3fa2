// Schedules interpreted on threads, with a backend that knows what it must be told.

#include "dapple/exec/interpreter.h"

#include <catch2/catch.hpp>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "../../support/random_pipeline.h"
#include "dapple/exec/replay.h"
#include "job.h"

namespace dapple {
namespace {

using namespace small;

/// Sends what names sender, action and receiver, and notes what it is told that it should not be.
class SuspiciousBackend : public Backend {
 public:
  explicit SuspiciousBackend(DeviceIndex device) : device_(device) {}

  void take_in(const Action& receive, const SchedulePeer& from, Payload payload) override {
    const bool is_activation = receive.kind == ActionKind::ReceiveActivation;
    const StageIndex stage = is_activation ? receive.stage.previous() : receive.stage.next();
    const ActionKind kind = is_activation ? ActionKind::SendActivation : ActionKind::SendGradient;
    if (payload != content({kind, receive.index, stage}, from.device, device_, from.size)) {
      faults.push_back("wrong content at " + to_text(receive));
    }
  }

  Payload give_out(const Action& send, const SchedulePeer& to) override {
    return content(send, device_, to.device, to.size);
  }

  void compute(const Action& action, const BucketReady& ready) override {
    computed.push_back(action);
    if (!ready) return;
    for (std::int32_t k = 0; k < buckets[action.stage]; ++k) ready(k);
  }

  std::span<float> bucket(const Action& reduction, Bytes size) override {
    const std::lock_guard lock(mutex_);
    std::vector<float>& values = reduced[{reduction.stage, reduction.index}];
    const auto floats = static_cast<std::size_t>(size.count) / sizeof(float) + 1;
    values.assign(floats, static_cast<float>(device_.value + 1));
    return values;
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
  std::map<std::pair<StageIndex, std::int32_t>, std::vector<float>> reduced;
  std::map<Action, std::size_t, Before> stepped_after;
  std::vector<std::string> faults;

 private:
  static Payload content(const Action& send, DeviceIndex from, DeviceIndex to, Bytes size) {
    const std::string name =
        to_text(send) + " " + std::to_string(from.value) + ">" + std::to_string(to.value) + ";";
    Payload payload(static_cast<std::size_t>(size.count));
    for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = std::byte(name[i % name.size()]);
    return payload;
  }

  const DeviceIndex device_;
  std::mutex mutex_;
};

std::vector<Action> computations_of(const DeviceSchedule& schedule) {
  std::vector<Action> actions;
  for (const DeviceAction& entry : schedule.actions) {
    if (stream_of(entry.action.kind) == Stream::Compute) actions.push_back(entry.action);
  }
  return actions;
}

TEST_CASE("every device does what its schedule says, and is told what is meant for it") {
  Dice dice(3201);
  int dealt = 0;
  for (int round = 0; round < scaled(300); ++round) {
    const Pipeline pipeline = random_pipeline(dice, {.deal = true});
    INFO("instance " << round << ": " << text_of(pipeline));
    const std::vector<DeviceSchedule> schedules =
        device_schedules(pipeline.schedule, pipeline.costs);
    std::vector<DeviceIndex> devices;
    Bytes expected;
    for (const DeviceSchedule& schedule : schedules) {
      devices.push_back(schedule.device);
      for (const DeviceAction& entry : schedule.actions) {
        const Stream stream = stream_of(entry.action.kind);
        if (stream == Stream::SendForward || stream == Stream::SendBackward) expected += entry.size;
      }
    }
    ThreadNetwork network(pipeline.topology, devices, {});
    std::vector<std::unique_ptr<SuspiciousBackend>> backends;
    std::vector<std::vector<MeasuredAction>> measured(schedules.size());
    for (const DeviceSchedule& schedule : schedules) {
      backends.push_back(std::make_unique<SuspiciousBackend>(schedule.device));
      for (const StageIndex stage : schedule.stages) {
        backends.back()->buckets[stage] = static_cast<std::int32_t>(
            pipeline.plan.stages[stage.position()].gradient_buckets.size());
      }
    }
    Bytes reduced;
    side_by_side(schedules.size(), [&](std::size_t i) {
      const auto end = network.end_of(schedules[i].device);
      Interpreter interpreter(
          schedules[i],
          [&](const Action& reduction) {
            return ReductionGroup{{pipeline.plan.stages[reduction.stage.position()].devices}};
          },
          *backends[i], *end);
      measured[i] = interpreter.run(0);
    });
    for (std::size_t i = 0; i < schedules.size(); ++i) {
      REQUIRE(backends[i]->faults.empty());
      REQUIRE(backends[i]->computed == computations_of(schedules[i]));
      for (const auto& [bucket, values] : backends[i]->reduced) {
        const StagePlan& stage = pipeline.plan.stages[bucket.first.position()];
        float sum = 0;
        for (const DeviceIndex member : stage.devices) sum += static_cast<float>(member.value + 1);
        REQUIRE(values == std::vector<float>(values.size(), sum));
        // All other replicas add up as much: 2 (r-1)/r of it from each of r.
        reduced += Bytes{static_cast<std::int64_t>(2 * (stage.devices.size() - 1) * values.size() *
                                                   sizeof(float)) /
                         static_cast<std::int64_t>(stage.devices.size())};
        if (stage.replication == Replication::Deal) ++dealt;
      }
      std::size_t actions = 0;
      for (const DeviceAction& entry : schedules[i].actions) {
        if (stream_of(entry.action.kind) != Stream::None) ++actions;
      }
      REQUIRE(measured[i].size() == actions);
    }
    REQUIRE(network.sent() >= expected);
    if (reduced.count == 0) REQUIRE(network.sent() == expected);
  }
  CHECK(dealt >= scaled(20));
}

TEST_CASE("an optimizer's step waits for its buckets") {
  const PlanShape shape{.micro_batch_size = 2,
                        .num_micro_batches = 2,
                        .depths = {1},
                        .stages = {{.layers = 3, .devices = {0, 1}}},
                        .bucket_size = {1},
                        .optimizer = OptimizerTiming::PerBucket};
  const Pipeline pipeline(model_of({{.parameters = 4}, {.parameters = 8}, {.parameters = 12}}),
                          full_mesh(2, {bytes_per_ns(1), {}}), shape);
  const std::vector<DeviceSchedule> schedules = device_schedules(pipeline.schedule, pipeline.costs);
  ThreadNetwork network(pipeline.topology, all_devices(pipeline.topology), {});
  std::vector<std::unique_ptr<SuspiciousBackend>> backends;
  for (const DeviceSchedule& schedule : schedules) {
    backends.push_back(std::make_unique<SuspiciousBackend>(schedule.device));
    backends.back()->buckets[StageIndex{0}] = 3;
  }
  side_by_side(2, [&](std::size_t i) {
    const auto end = network.end_of(schedules[i].device);
    Interpreter(
        schedules[i],
        [](const Action&) {
          return ReductionGroup{{{DeviceIndex{0}, DeviceIndex{1}}}};
        },
        *backends[i], *end)
        .run(0);
  });
  for (const auto& backend : backends) {
    REQUIRE(backend->stepped_after.size() == 3);
    for (const auto& [step, buckets] : backend->stepped_after) {
      CHECK(buckets >= static_cast<std::size_t>(step.index + 1));
    }
  }
}

TEST_CASE("a backend that fails ends the run on every device, and its own error is what is told") {
  class Failing : public SuspiciousBackend {
   public:
    using SuspiciousBackend::SuspiciousBackend;
    void compute(const Action& action, const BucketReady& ready) override {
      if (action.kind == ActionKind::Backward && action.index == 1) throw Bug("out of order");
      SuspiciousBackend::compute(action, ready);
    }
  };
  const Pipeline pipeline = straight({{.output = 4}, {.output = 4}, {.output = 4}},
                                     {.num_micro_batches = 4, .depths = {3, 2, 1}});
  const std::vector<DeviceSchedule> schedules = device_schedules(pipeline.schedule, pipeline.costs);
  ThreadNetwork network(pipeline.topology, all_devices(pipeline.topology), {});
  std::vector<std::string> ends(3);
  side_by_side(3, [&](std::size_t i) {
    const auto end = network.end_of(schedules[i].device);
    Failing failing(schedules[i].device);
    SuspiciousBackend sound(schedules[i].device);
    Backend& backend = i == 2 ? static_cast<Backend&>(failing) : sound;
    try {
      Interpreter(
          schedules[i], [](const Action&) { return ReductionGroup{}; }, backend, *end)
          .run(0);
      ends[i] = "done";
    } catch (const JobAborted&) { ends[i] = "aborted"; } catch (const Bug& bug) {
      ends[i] = bug.what();
    }
  });
  CHECK(ends == std::vector<std::string>{"aborted", "aborted", "out of order"});
}

TEST_CASE("a replayed iteration is no faster than the work of its busiest device") {
  // Two stages of 1 ms and 2 ms, four micro-batches: 4 * 3 + 3 of the other stage's first forward
  // and last backward, and the transfers of 0.1 ms.
  const Pipeline pipeline =
      straight({{.forward = 1'000'000, .backward = 2'000'000, .output = 100'000},
                {.forward = 1'000'000, .backward = 2'000'000, .output = 100'000}},
               {.num_micro_batches = 4, .depths = {3, 1}});
  PlanDocument document;
  document.profile = pipeline.profile;
  document.topology = pipeline.topology.description();
  document.plan = pipeline.plan;
  const Replayed replayed = replay(document, pipeline.topology, {.iterations = 3});
  REQUIRE(replayed.iterations.size() == 3);
  CHECK(replayed.median >= Duration{15'200'000});
  CHECK(replayed.timeline.origin == Timeline::Origin::Measured);
  CHECK(replayed.timeline.lanes.size() == 2);
  // Four activations there and four gradients back.
  CHECK(replayed.sent.count == 8 * 100'000);
  // Every computation lasts as long as it must, and none overlaps the next.
  Duration free[2];
  for (const TimedAction& timed : replayed.timeline.actions) {
    if (stream_of(timed.action.kind) != Stream::Compute) continue;
    Duration& until = free[timed.lane.position()];
    CHECK(timed.start >= until);
    until = timed.end;
    if (timed.action.kind == ActionKind::Forward) CHECK((timed.end - timed.start).ns >= 1'000'000);
    if (timed.action.kind == ActionKind::Backward) CHECK((timed.end - timed.start).ns >= 2'000'000);
  }
}

}  // namespace
}  // namespace dapple
