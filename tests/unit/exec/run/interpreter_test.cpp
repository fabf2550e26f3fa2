// Schedules interpreted on threads, with a backend that knows what it must be told.

#include "dapple/exec/run/interpreter.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "../../../support/delaying_transport.h"
#include "../../../support/job.h"
#include "../../../support/random_pipeline.h"
#include "../../../support/suspicious_backend.h"
#include "dapple/exec/replay/replay.h"

namespace dapple::exec {
namespace {

using namespace small;

TEST_CASE("every device does what its schedule says, and is told what is meant for it") {
  Dice dice(3201);
  int dealt = 0;
  for (int round = 0; round < scaled(300); ++round) {
    const Pipeline pipeline = random_pipeline(dice, {.deal = true});
    INFO("instance " << round << ": " << text_of(pipeline));
    const std::vector<DeviceSchedule> schedules =
        device_schedules(pipeline.schedule, pipeline.costs);
    ThreadNetwork network(pipeline.topology, devices_of(schedules), {});
    side_by_side(schedules.size(), [&](std::size_t i) {
      run_suspiciously(pipeline, schedules[i], *network.end_of(schedules[i].device), 0);
    });
    for (const StagePlan& stage : pipeline.plan.stages) {
      if (stage.replication == Replication::Deal) ++dealt;
    }
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

TEST_CASE("a message that cannot be sent is what is told, not that others were aborted by it") {
  class Torn : public small::DelayingTransport {
   public:
    explicit Torn(Transport& under) : DelayingTransport(under, 1, 10) {}
    std::int64_t send(const MessageKey& key, Payload payload) override {
      if (key.action.index == 2) throw Error(ErrorKind::Environment, "", {{"", "torn"}});
      return DelayingTransport::send(key, std::move(payload));
    }
  };
  const Pipeline pipeline =
      straight({{.output = 4}, {.output = 4}}, {.num_micro_batches = 4, .depths = {2, 1}});
  const std::vector<DeviceSchedule> schedules = device_schedules(pipeline.schedule, pipeline.costs);
  ThreadNetwork network(pipeline.topology, all_devices(pipeline.topology), {});
  std::vector<std::string> ends(2);
  side_by_side(2, [&](std::size_t i) {
    const auto end = network.end_of(schedules[i].device);
    Torn torn(*end);
    try {
      run_suspiciously(pipeline, schedules[i], i == 0 ? static_cast<Transport&>(torn) : *end, 0);
    } catch (const JobAborted&) { ends[i] = "aborted"; } catch (const Error& error) {
      ends[i] = error.what();
    }
  });
  CHECK(ends == std::vector<std::string>{"torn", "aborted"});
}

TEST_CASE("slowed stages and links take as much longer, and no others do") {
  // Two stages of 2 ms and 4 ms for eight micro-batches; 100,000 bytes take 0.1 ms.
  const LayerFigures layer{.forward = 2'000'000, .backward = 4'000'000, .output = 100'000};
  const Pipeline pipeline = straight({layer, layer}, {.num_micro_batches = 8, .depths = {2, 1}});
  // A stage 1.5 times as long, and activations, not gradients, 20 times.
  const Replayed slowed = replay(document_of(pipeline), pipeline.topology,
                                 {.iterations = 1,
                                  .slow_stages = {{{1}, Factor{1'500'000'000}}},
                                  .slow_links = {{{0}, {1}, Factor{20'000'000'000}}}});
  Duration quickest_forward[2] = {{INT64_MAX}, {INT64_MAX}};
  for (const TimedAction& timed : slowed.timeline.actions) {
    const Duration length = timed.end - timed.start;
    if (timed.action.kind == ActionKind::SendActivation) CHECK(length.ns >= 2'000'000);
    if (timed.action.kind == ActionKind::SendGradient) CHECK(length.ns >= 100'000);
    if (timed.action.kind != ActionKind::Forward) continue;
    Duration& quickest = quickest_forward[timed.lane.position()];
    quickest = std::min(quickest, length);
  }
  CHECK(quickest_forward[0].ns >= 2'000'000);
  CHECK(quickest_forward[0].ns < 3'000'000);
  CHECK(quickest_forward[1].ns >= 3'000'000);
}

TEST_CASE("a replayed iteration is no faster than the work of its busiest device") {
  // Two stages of 1 ms and 2 ms, four micro-batches: 4 * 3 + 3 of the other stage's first forward
  // and last backward, and the transfers of 0.1 ms.
  const Pipeline pipeline =
      straight({{.forward = 1'000'000, .backward = 2'000'000, .output = 100'000},
                {.forward = 1'000'000, .backward = 2'000'000, .output = 100'000}},
               {.num_micro_batches = 4, .depths = {3, 1}});
  const Replayed replayed = replay(document_of(pipeline), pipeline.topology, {.iterations = 3});
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

TEST_CASE("replicas that shard the optimizer's state replay half of a reduction") {
  const std::vector<LayerFigures> layers(
      1, {.forward = 1'000, .backward = 1'000, .parameters = 4'000});
  const PlanShape shape{.micro_batch_size = 3,
                        .num_micro_batches = 1,
                        .depths = {1},
                        .stages = {{.layers = 1, .devices = {0, 1, 2}}}};
  Plan plan = plan_of(model_of(layers), shape);
  TopologyDescription description = full_mesh(3, {bytes_per_ns(1), {}});
  // A bucket of 4,000 bytes passes two hops to be summed, and two to be spread.
  const Pipeline whole(model_of(layers), description, plan);
  CHECK(replay(document_of(whole), whole.topology, {.iterations = 1}).sent.count == 16'000);
  plan.parallelism.shards_optimizer = true;
  description.shards_optimizer = true;
  const Pipeline sharded(model_of(layers), description, plan);
  CHECK(replay(document_of(sharded), sharded.topology, {.iterations = 1}).sent.count == 8'000);
}

TEST_CASE("a replay ends on all devices after the iteration in which any is told to") {
  const LayerFigures layer{.forward = 1'000, .backward = 1'000, .output = 1'000};
  const Pipeline pipeline = straight({layer, layer}, {.num_micro_batches = 2, .depths = {2, 1}});
  std::atomic<int> asked = 0;
  // Both devices ask once an iteration: the fifth to ask is one of them in the third.
  const Replayed replayed =
      replay(document_of(pipeline), pipeline.topology,
             {.iterations = 100, .should_stop = [&asked] { return ++asked == 5; }});
  CHECK(replayed.iterations.size() == 3);
  CHECK(asked == 6);
  // What they tell each other about it is not the plan's.
  CHECK(replayed.sent.count == 4 * 1'000);
}

}  // namespace
}  // namespace dapple::exec
