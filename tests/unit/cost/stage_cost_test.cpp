// Stages worked by hand: memory, times by share and kind of device, optimizer step, shortages.

#include <catch2/catch.hpp>

#include "../../support/plans.h"

#include "dapple/core/error.h"
#include "dapple/cost/compatible.h"
#include "dapple/cost/cost_model.h"

namespace dapple {
namespace {

using namespace small;

/// Three layers, a stage each; gradients of half a byte and state of two bytes per parameter byte.
ModelProfile three_layers() {
  ModelProfile model = model_of(
      {{.forward = 1, .backward = 2, .output = 20, .parameters = 100, .stash = 7, .workspace = 5},
       {.forward = 1, .backward = 2, .output = 30, .parameters = 51, .stash = 11, .workspace = 3},
       {.forward = 1, .backward = 2, .output = 40, .parameters = 10, .stash = 13, .workspace = 1}});
  model.optimizer.gradient_bytes_per_parameter_byte = Factor{500'000'000};
  model.optimizer.state_bytes_per_parameter_byte = Factor{2'000'000'000};
  return model;
}

CostedPlan three_stages(bool recompute) {
  return {three_layers(), full_mesh(4, {bytes_per_ns(1), {}}),
          PlanShape{.micro_batch_size = 3,
                    .num_micro_batches = 6,
                    .depths = {6, 3, 1},
                    .stages = {{.layers = 1, .devices = {0}, .recompute = recompute},
                               {.layers = 1, .devices = {1, 2}, .recompute = recompute},
                               {.layers = 1, .devices = {3}, .recompute = recompute}}}};
}

TEST_CASE("memory is weights, gradients, state, stashes in flight, workspace and buffers") {
  const CostedPlan pipeline = three_stages(false);
  // Stage 1, replica 0: 2 of the 3 samples.
  const MemoryCost& memory = pipeline.costs.stages[1].replicas[0].memory;
  CHECK(memory.weights.count == 51);
  CHECK(memory.gradients.count == 26);  // 25.5
  CHECK(memory.optimizer_state.count == 102);
  CHECK(memory.workspace.count == 6);
  // Before: 2 + 2 tensors of 2 * 20, and 6 - 3 that wait: 7 * 40 = 280. Behind: 4 tensors of 2 * 30
  // and 3 - 1 gradients that wait: 6 * 60 = 360. The bucket: 26.
  CHECK(memory.communication_buffers.count == 280 + 360 + 26);
  CHECK(memory.per_micro_batch.count == 22);
  CHECK(memory.recompute_stash.count == 0);
  CHECK(memory.in_flight == 3);
  CHECK(memory.fixed().count == 51 + 26 + 102 + 6 + 666);
  CHECK(memory.peak().count == 851 + 3 * 22);
  // Replica 1 has one sample: half of all that goes with samples.
  const MemoryCost& other = pipeline.costs.stages[1].replicas[1].memory;
  CHECK(other.communication_buffers.count == 140 + 180 + 26);
  CHECK(other.peak().count == 51 + 26 + 102 + 3 + 346 + 3 * 11);
}

TEST_CASE("of sharded state each replica holds and updates its part, and gathers the rest") {
  ModelProfile model = model_of({{.forward = 10, .backward = 20, .parameters = 1'001}});
  model.optimizer.state_bytes_per_parameter_byte = {2 * kOne.billionths};
  model.optimizer.step_ns_per_parameter_byte = kOne;
  const PlanShape shape{.micro_batch_size = 2,
                        .num_micro_batches = 1,
                        .depths = {1},
                        .stages = {{.layers = 1, .devices = {0, 1}}}};
  TopologyDescription description = cluster({.servers = 1, .devices = 2});
  const CostedPlan whole(model, description, shape);
  description.shards_optimizer = true;
  const CostedPlan sharded(model, description, shape);
  const StageCost& before = whole.costs.stages.front();
  const StageCost& after = sharded.costs.stages.front();
  CHECK(before.replicas[0].memory.optimizer_state == Bytes{2'002});
  CHECK(after.replicas[0].memory.optimizer_state == Bytes{1'001});
  CHECK(after.replicas[0].memory.weights == before.replicas[0].memory.weights);
  CHECK(after.replicas[0].memory.gradients == before.replicas[0].memory.gradients);
  // At 1 byte/ns over two devices an all-reduce of 1,001 bytes takes as many ns, its halves 501.
  CHECK(before.buckets.front().time == Duration{1'001});
  CHECK(after.buckets.front().time == Duration{501});
  CHECK(before.optimizer_step == Duration{1'001});
  CHECK(after.optimizer_step == Duration{501 + 501});
}

TEST_CASE("the first and the last stage have a boundary on one side only") {
  const CostedPlan pipeline = three_stages(false);
  // Stage 0: 3 samples; behind it 4 tensors of 60 and 6 - 3 that wait.
  const MemoryCost& first = pipeline.costs.stages[0].replicas[0].memory;
  CHECK(first.communication_buffers.count == 7 * 60);
  CHECK(first.peak().count == 100 + 50 + 200 + 15 + 420 + 6 * 21);
  // Stage 2: before it 4 tensors of 90 and 3 - 1 that wait; the model's output goes nowhere.
  const MemoryCost& last = pipeline.costs.stages[2].replicas[0].memory;
  CHECK(last.communication_buffers.count == 6 * 90);
  CHECK(last.peak().count == 10 + 5 + 20 + 3 + 540 + 39);
}

TEST_CASE("with recomputation the stage's input is kept per micro-batch and one stash beside it") {
  const CostedPlan pipeline = three_stages(true);
  const MemoryCost& memory = pipeline.costs.stages[1].replicas[0].memory;
  CHECK(memory.per_micro_batch.count == 40);  // 2 samples of layer 0's output
  CHECK(memory.recompute_stash.count == 22);
  CHECK(memory.peak().count == 851 + 22 + 3 * 40);
  // The model's own input is part of its first layer's stash.
  const MemoryCost& first = pipeline.costs.stages[0].replicas[0].memory;
  CHECK(first.per_micro_batch.count == 21);
  CHECK(first.recompute_stash.count == 21);
}

TEST_CASE("the workspace is that of the neediest layer, the stash that of all") {
  const CostedPlan pipeline(three_layers(), full_mesh(1, {bytes_per_ns(1), {}}),
                            PlanShape{.depths = {1}, .stages = {{.layers = 3, .devices = {0}}}});
  const MemoryCost& memory = pipeline.costs.stages[0].replicas[0].memory;
  CHECK(memory.workspace.count == 5);
  CHECK(memory.per_micro_batch.count == 7 + 11 + 13);
  CHECK(memory.communication_buffers.count == 0);
  CHECK(memory.weights.count == 161);
  CHECK(memory.gradients.count == 81);  // 80.5
}

TEST_CASE("a dealt replica holds no more micro-batches than it gets") {
  // 5 micro-batches on two replicas are 3 and 2, at a depth of 3.
  const CostedPlan pipeline(three_layers(), full_mesh(2, {bytes_per_ns(1), {}}),
                            PlanShape{.num_micro_batches = 5,
                                      .depths = {3},
                                      .stages = {{.layers = 3, .devices = {0, 1}, .dealt = true}}});
  CHECK(pipeline.costs.stages[0].replicas[0].memory.in_flight == 3);
  CHECK(pipeline.costs.stages[0].replicas[1].memory.in_flight == 2);
}

TEST_CASE("recomputation adds the forward to the backward and to each bucket's moment") {
  // Two samples per replica: forward 6, backward 12; the last layer's gradient after 6 + 4.
  const CostedPlan pipeline(
      three_layers(), full_mesh(2, {bytes_per_ns(1), {}}),
      PlanShape{.micro_batch_size = 4,
                .depths = {1},
                .stages = {{.layers = 3, .devices = {0, 1}, .recompute = true}},
                .bucket_size = {1}});
  const StageCost& stage = pipeline.costs.stages[0];
  CHECK(stage.forward.ns == 6);
  CHECK(stage.recomputation.ns == 6);
  CHECK(stage.backward.ns == 18);
  CHECK(stage.bucket_ready == std::vector<Duration>{{10}, {14}, {18}});
}

TEST_CASE("the optimizer step is rounded up once for the stage") {
  // 100 + 51 bytes at 0.3 ns: 45.3.
  ModelProfile model = three_layers();
  model.optimizer.step_ns_per_parameter_byte = Factor{300'000'000};
  const Topology topology(full_mesh(1, {bytes_per_ns(1), {}}));
  const CostModel costs(model, topology);
  CHECK(costs.optimizer_step({0, 2}).ns == 46);
  model.optimizer.step_ns_per_parameter_byte.reset();
  CHECK(costs.optimizer_step({0, 2}).ns == 0);
}

TEST_CASE("the optimizer's parts are those of the buckets, and add up to the whole step") {
  // From the last layer on: 10 * 0.3 = 3; 61 * 0.3 = 18.3, up to 19: 16 more; 161 * 0.3 = 48.3, up
  // to 49: 30 more.
  ModelProfile model = three_layers();
  model.optimizer.step_ns_per_parameter_byte = Factor{300'000'000};
  PlanShape shape{.micro_batch_size = 2,
                  .depths = {1},
                  .stages = {{.layers = 3, .devices = {0, 1}}},
                  .bucket_size = {1},
                  .optimizer = OptimizerTiming::PerBucket};
  const TopologyDescription pair = full_mesh(2, {bytes_per_ns(1), {}});
  const StageCost stage = CostedPlan(model, pair, shape).costs.stages[0];
  CHECK(stage.optimizer_step.ns == 49);
  CHECK(stage.bucket_steps == std::vector<Duration>{{3}, {16}, {30}});
  shape.optimizer = OptimizerTiming::AtEnd;
  CHECK(CostedPlan(model, pair, shape).costs.stages[0].bucket_steps.empty());
  // One device reduces nothing, so that there are no buckets to step by.
  shape.optimizer = OptimizerTiming::PerBucket;
  shape.stages = {{.layers = 3, .devices = {0}}};
  CHECK(CostedPlan(model, pair, shape).costs.stages[0].bucket_steps.empty());
}

/// Two servers of one device: the profiled kind with 2000 bytes, and one of 0.4 times its time with
/// 1500, of which 400 are reserved.
TopologyDescription two_kinds() {
  ServerGroup slow;
  slow.name = "slow";
  slow.device = "gpu";
  slow.nics = {{.source = "", .link = {bytes_per_ns(1), {}}, .devices = {}}};
  ServerGroup fast = slow;
  fast.name = "fast";
  fast.device = "fast gpu";
  TopologyDescription description = description_of({slow, fast});
  description.devices[0].memory = {2000};
  DeviceKind kind;
  kind.name = "fast gpu";
  kind.memory = {1500};
  kind.reserved = {400};
  kind.time_scale = {{"gpu", Factor{400'000'000}}};
  description.devices.push_back(kind);
  return description;
}

TEST_CASE(
    "a kind of device scales the times, rounded up per layer, and the slowest replica counts") {
  const CostedPlan pipeline(
      three_layers(), two_kinds(),
      PlanShape{
          .micro_batch_size = 2, .depths = {1}, .stages = {{.layers = 3, .devices = {0, 1}}}});
  const StageCost& stage = pipeline.costs.stages[0];
  CHECK(stage.replicas[0].forward.ns == 3);
  CHECK(stage.replicas[1].forward.ns == 3);  // 0.4 -> 1 for each of three layers
  CHECK(stage.replicas[0].backward.ns == 6);
  CHECK(stage.replicas[1].backward.ns == 3);  // 0.8 -> 1
  CHECK(stage.forward.ns == 3);
  CHECK(stage.backward.ns == 6);
}

TEST_CASE("shortages name the devices and what they miss, worst first") {
  // Three layers on one device: 161 + 81 + 322 + 5 + K * 31. At depth 20: 569 + 620 = 1189, fits
  // into 2000, but not into 1500 - 400 = 1100. At depth 50: 2119, 119 and 1019 too many.
  const auto shortages_at = [](std::int64_t depth) {
    const CostedPlan pipeline(three_layers(), two_kinds(),
                              PlanShape{.micro_batch_size = 2,
                                        .num_micro_batches = 50,
                                        .depths = {depth},
                                        .stages = {{.layers = 3, .devices = {0, 1}}}});
    return memory_shortages(pipeline.costs);
  };
  // The bucket is a buffer too: 100 / 2 -> 50, 51 / 2 -> 26, 10 / 2 -> 5, together 81.
  const std::vector<MemoryShortage> one = shortages_at(20);
  REQUIRE(one.size() == 1);
  CHECK(one[0].device.value == 1);
  CHECK(one[0].stage.value == 0);
  CHECK(one[0].needed.count == 1189 + 81);
  CHECK(one[0].limit.count == 1100);
  CHECK(one[0].missing().count == 170);
  const std::vector<MemoryShortage> two = shortages_at(50);
  REQUIRE(two.size() == 2);
  CHECK(two[0].device.value == 1);
  CHECK(two[0].missing().count == 2119 + 81 - 1100);
  CHECK(two[1].device.value == 0);
  CHECK(two[1].missing().count == 2119 + 81 - 2000);
  CHECK(shortages_at(1).empty());
}

TEST_CASE("the profiled device and scaled ones are accepted, an unknown one is named") {
  const ModelProfile model = three_layers();
  const Topology topology(two_kinds());
  CHECK(check_compatible(model, topology, 64).empty());
  ModelProfile other = model;
  other.device = "tpu";
  const std::vector<Violation> violations = check_compatible(other, topology, 64);
  REQUIRE(violations.size() == 2);
  CHECK(violations[0].place == "/devices/gpu");
  CHECK(violations[0].message ==
        "expected the profiled device \"tpu\" or a time_scale for it, got \"gpu\" without one");
  CHECK(violations[1].place == "/devices/fast gpu");
}

TEST_CASE("a kind has its own times, or those of the first measured kind it is scaled to") {
  ModelProfile model = three_layers();
  DeviceKind kind;
  kind.name = "fast gpu";
  kind.time_scale = {{"gpu", Factor{400'000'000}}, {"b", Factor{2'000'000'000}}};
  CHECK(time_source(model, kind) == TimeSource(0, Factor{400'000'000}));
  model.other_devices = {"b", "c"};
  CHECK(time_source(model, kind) == TimeSource(0, Factor{400'000'000}));
  kind.time_scale.erase("gpu");
  CHECK(time_source(model, kind) == TimeSource(1, Factor{2'000'000'000}));
  kind.name = "c";
  CHECK(time_source(model, kind) == TimeSource(2, kOne));
  kind.name = "d";
  kind.time_scale.clear();
  CHECK_FALSE(time_source(model, kind).has_value());
}

TEST_CASE("the least times over the kinds in use are those of each measured one, least scaled") {
  const std::vector<TimeSource> sources = least_time_sources(three_layers(), Topology(two_kinds()));
  CHECK(sources == std::vector<TimeSource>{TimeSource(0, Factor{400'000'000})});
  ModelProfile model = three_layers();
  model.other_devices = {"fast gpu"};
  for (Layer& layer : model.layers) {
    layer.other_times = {{.fixed_overhead = {}, .measurements = layer.measurements}};
    for (Measurement& measurement : layer.other_times[0].measurements) {
      std::swap(measurement.forward, measurement.backward);
    }
  }
  const Topology topology(two_kinds());
  CHECK(least_time_sources(model, topology) ==
        std::vector<TimeSource>{TimeSource(0, kOne), TimeSource(1, kOne)});
  const CostModel costs(model, topology);
  for (std::int32_t l = 0; l < costs.layer_count(); ++l) {
    const LayerTable& least = costs.least_table(2);
    const LayerTable& own = costs.table(2, 0);
    const LayerRange alone{l, l + 1};
    CHECK(least.forward(alone) == std::min(own.forward(alone), own.backward(alone)));
    CHECK(least.backward(alone) == least.forward(alone));
    CHECK(costs.table(2, 1).forward(alone) == own.backward(alone));
  }
}

TEST_CASE("a kind's name in a place is escaped as JSON pointers have it") {
  TopologyDescription description = two_kinds();
  description.servers[1].device = "fast/gpu~1";
  description.devices[1].name = "fast/gpu~1";
  description.devices[1].time_scale = {};
  const std::vector<Violation> violations =
      check_compatible(three_layers(), Topology(description), 64);
  REQUIRE(violations.size() == 1);
  CHECK(violations[0].place == "/devices/fast~1gpu~01");
}

TEST_CASE("a kind that no server has need not be known") {
  TopologyDescription description = two_kinds();
  DeviceKind unused;
  unused.name = "unused";
  unused.memory = {1};
  description.devices.push_back(unused);
  CHECK(check_compatible(three_layers(), Topology(description), 64).empty());
}

TEST_CASE("problems whose sums could leave 63 bits are refused") {
  const Topology topology(full_mesh(1, {bytes_per_ns(1), {}}));
  // 10^15 ns of forward count twice (recomputation), so one sample is too long.
  CHECK_FALSE(check_compatible(model_of({{.forward = kMaxCount}}), topology, 1).empty());
  CHECK(check_compatible(model_of({{.forward = kMaxCount / 4}}), topology, 1).empty());
  // 4 samples of a quarter are as long.
  CHECK_FALSE(check_compatible(model_of({{.forward = kMaxCount / 4}}), topology, 4).empty());
  // 10^13 ns slowed down a thousand times.
  TopologyDescription slowed = full_mesh(2, {bytes_per_ns(1), {}});
  slowed.overlap_slowdown = Factor{1'000'000'000'000};
  const ModelProfile long_backward = model_of({{.backward = 10'000'000'000'000}});
  CHECK(check_compatible(long_backward, topology, 1).empty());
  CHECK_FALSE(check_compatible(long_backward, Topology(slowed), 1).empty());
  // 10^15 bytes of stash for each of 2,000 samples.
  CHECK_FALSE(check_compatible(model_of({{.stash = kMaxCount}}), topology, 2000).empty());
  CHECK(check_compatible(model_of({{.stash = kMaxCount}}), topology, 500).empty());
  // 10^12 bytes over 1 B/s.
  const Topology slow(cluster({.servers = 2, .devices = 1, .nics = {Link{{1}, {}}}}));
  CHECK_FALSE(check_compatible(model_of({{.output = 1'000'000'000'000}, {}}), slow, 1).empty());
}

}  // namespace
}  // namespace dapple
