#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/validate.h"

namespace dapple {
namespace {

constexpr std::int32_t kLayers = 20;

/// Two servers of four devices: node0:0 ... node1:3.
Topology two_by_four() {
  const Link port{.bandwidth = {1'000'000'000}, .latency = {1000}};
  ServerGroup group;
  group.name = "node";
  group.count = 2;
  group.device = "gpu";
  group.devices = 4;
  group.links.port = port;
  group.nics = {Nic{.source = "", .link = port, .devices = {}}};
  TopologyDescription description;
  description.name = "2x4";
  description.devices = {DeviceKind{.name = "gpu",
                                    .source = "",
                                    .memory = {1'000'000},
                                    .reserved = {0},
                                    .time_scale = {},
                                    .price_per_hour = {}}};
  description.servers = {group};
  description.network = port;
  return Topology(description);
}

StagePlan stage_of(LayerRange layers, std::vector<DeviceIndex> devices) {
  StagePlan stage;
  stage.layers = layers;
  stage.devices = std::move(devices);
  return stage;
}

/// Layers 0 to 11 on devices 0 and 1, layers 12 to 19 on device 2; 8 samples as 4 times 2.
Plan sound_plan() {
  Plan plan{.global_batch_size = 8,
            .micro_batch_size = 2,
            .num_micro_batches = 4,
            .warmup_depths = {2, 1},
            .stages = {}};
  plan.stages = {stage_of({0, 12}, {DeviceIndex{0}, DeviceIndex{1}}),
                 stage_of({12, 20}, {DeviceIndex{2}})};
  plan.stages[0].gradient_buckets = {Bytes{100}, Bytes{50}};
  return plan;
}

std::vector<Violation> faults_of(const Plan& plan) {
  static const Topology topology = two_by_four();
  return validate(plan, kLayers, topology);
}

void check_fault(const Plan& plan, const std::string& place, const std::string& message) {
  const std::vector<Violation> faults = faults_of(plan);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].place == place);
  CHECK(faults[0].message == message);
}

TEST_CASE("a sound plan has no faults") {
  CHECK(faults_of(sound_plan()).empty());
}

TEST_CASE("layers that no stage holds are named") {
  Plan plan = sound_plan();
  SECTION("between two stages") {
    plan.stages[1].layers.begin = 15;
    check_fault(plan, "/stages/1/layers", "layers 12 to 14 are in no stage");
  }
  SECTION("a single one") {
    plan.stages[1].layers.begin = 13;
    check_fault(plan, "/stages/1/layers", "layer 12 is in no stage");
  }
  SECTION("before the first stage") {
    plan.stages[0].layers.begin = 2;
    check_fault(plan, "/stages/0/layers", "layers 0 to 1 are in no stage");
  }
  SECTION("behind the last stage") {
    plan.stages[1].layers.end = 18;
    check_fault(plan, "/stages", "layers 18 to 19 are in no stage");
  }
}

TEST_CASE("layers that two stages hold are named") {
  Plan plan = sound_plan();
  plan.stages[1].layers.begin = 10;
  check_fault(plan, "/stages/1/layers", "layers 10 to 11 are in stage 0 too");
  plan.stages[1].layers = {11, 12};
  const std::vector<Violation> faults = faults_of(plan);
  REQUIRE(faults.size() == 2);
  CHECK(faults[0].message == "layer 11 is in stage 0 too");
  CHECK(faults[1].message == "layers 12 to 19 are in no stage");
}

TEST_CASE("a stage without layers, or with layers that the model has not, is named") {
  Plan plan = sound_plan();
  SECTION("empty") {
    plan.stages.push_back(stage_of({20, 20}, {DeviceIndex{3}}));
    plan.warmup_depths.push_back(1);
    check_fault(plan, "/stages/2/layers",
                "expected at least one layer, got [20, 20]: the stage is empty");
  }
  SECTION("too far") {
    plan.stages.push_back(stage_of({20, 21}, {DeviceIndex{3}}));
    plan.warmup_depths.push_back(1);
    check_fault(plan, "/stages/2/layers", "expected layers of the model, 0 to 20, got [20, 21]");
  }
}

TEST_CASE("stages that do not stand in the order of their layers are named") {
  Plan plan = sound_plan();
  std::swap(plan.stages[0].layers, plan.stages[1].layers);
  check_fault(plan, "/stages/1/layers",
              "expected layers behind those of stage 0, got [0, 12]: stages stand in the order of "
              "their layers");
}

TEST_CASE("devices that are used twice or are not there are named") {
  Plan plan = sound_plan();
  SECTION("twice, in two stages") {
    plan.stages[1].devices = {DeviceIndex{1}};
    check_fault(plan, "/stages/1/devices/0",
                "device node0:1 is used twice, first at /stages/0/devices/1");
  }
  SECTION("twice, in one stage") {
    plan.stages[0].devices = {DeviceIndex{5}, DeviceIndex{5}};
    check_fault(plan, "/stages/0/devices/1",
                "device node1:1 is used twice, first at /stages/0/devices/0");
  }
  SECTION("not there") {
    plan.stages[1].devices = {DeviceIndex{8}};
    check_fault(plan, "/stages/1/devices/0", "device 8 is not in the topology, which has 8");
  }
  SECTION("none at all") {
    plan.stages[1].devices.clear();
    check_fault(plan, "/stages/1/devices", "expected at least one device, got none");
  }
}

TEST_CASE("replicas that would have nothing to work on are refused") {
  Plan plan = sound_plan();
  plan.stages[0].devices = {DeviceIndex{0}, DeviceIndex{1}, DeviceIndex{3}};
  check_fault(plan, "/stages/0/devices",
              "expected at most 2 replicas, a sample of each micro-batch for each, got 3");
  plan.stages[0].replication = Replication::Deal;
  CHECK(faults_of(plan).empty());
  plan.stages[0].devices = {DeviceIndex{0}, DeviceIndex{1}, DeviceIndex{3}, DeviceIndex{4},
                            DeviceIndex{5}};
  check_fault(plan, "/stages/0/devices",
              "expected at most 4 replicas, a micro-batch for each, got 5");
}

TEST_CASE("batch sizes that do not multiply are refused") {
  Plan plan = sound_plan();
  plan.global_batch_size = 9;
  check_fault(plan, "/global_batch_size", "expected 4 micro-batches of 2 samples, got 9 samples");
  // 2^33 * 2^31 is 2^64, which 64 bits would take for 0.
  plan.micro_batch_size = std::int64_t{1} << 33;
  plan.num_micro_batches = std::int64_t{1} << 31;
  REQUIRE(faults_of(plan).size() == 2);
  CHECK(faults_of(plan)[0].message ==
        "expected 2147483648 micro-batches of 8589934592 samples, got 9 samples");
}

TEST_CASE("batch sizes below one are refused, without faults that only follow from them") {
  Plan plan = sound_plan();
  plan.micro_batch_size = 0;
  check_fault(plan, "/micro_batch_size", "expected at least 1, got 0");
  plan = sound_plan();
  plan.num_micro_batches = -4;
  check_fault(plan, "/num_micro_batches", "expected at least 1, got -4");
}

TEST_CASE("a schedule too long to be held in memory is refused") {
  Plan plan = sound_plan();
  plan.num_micro_batches = 5'000'000;
  plan.global_batch_size = 10'000'000;
  CHECK(faults_of(plan).empty());
  plan.num_micro_batches = 5'000'001;
  plan.global_batch_size = 10'000'002;
  check_fault(plan, "/num_micro_batches",
              "expected at most 5000000 micro-batches over 2 stages, got 5000001: the schedule "
              "would be too long");
}

TEST_CASE("warm-up depths out of range or rising are refused") {
  Plan plan = sound_plan();
  SECTION("count") {
    plan.warmup_depths = {2};
    check_fault(plan, "/schedule/warmup_depths", "expected one depth for each of 2 stages, got 1");
  }
  SECTION("zero") {
    plan.warmup_depths = {2, 0};
    check_fault(plan, "/schedule/warmup_depths/1",
                "expected a warm-up depth of 1 to 4, the number of micro-batches, got 0");
  }
  SECTION("more than the micro-batches") {
    plan.warmup_depths = {5, 1};
    check_fault(plan, "/schedule/warmup_depths/0",
                "expected a warm-up depth of 1 to 4, the number of micro-batches, got 5");
  }
  SECTION("rising") {
    plan.warmup_depths = {1, 2};
    check_fault(plan, "/schedule/warmup_depths/1",
                "expected a warm-up depth of at most 1, the depth of the stage before, got 2: the "
                "pipeline would deadlock");
  }
  SECTION("rising behind a dealt stage, where the dry run decides") {
    plan.warmup_depths = {1, 2};
    plan.stages[0].replication = Replication::Deal;
    CHECK(faults_of(plan).empty());
  }
  SECTION("rising behind a single device, which has nobody to deal to") {
    plan.warmup_depths = {1, 2};
    plan.stages[0].replication = Replication::Deal;
    plan.stages[0].devices = {DeviceIndex{0}};
    plan.stages[0].gradient_buckets.clear();
    REQUIRE(faults_of(plan).size() == 1);
    CHECK(faults_of(plan)[0].place == "/schedule/warmup_depths/1");
  }
}

TEST_CASE("shares that are given add up to the micro-batch, with a sample for each replica") {
  Plan plan = sound_plan();
  std::vector<std::int64_t>& samples = plan.stages[0].samples;
  const auto replicas = static_cast<std::int64_t>(plan.stages[0].devices.size());
  const char* place = "/stages/0/samples";
  REQUIRE(replicas == 2);
  SECTION("as they should") {
    samples = {1, plan.micro_batch_size - 1};
    CHECK(faults_of(plan).empty());
  }
  SECTION("one too few") {
    samples = {plan.micro_batch_size};
    check_fault(plan, place, "expected a number for each of 2 replicas, got 1");
  }
  SECTION("none for one of them") {
    samples = {0, plan.micro_batch_size};
    check_fault(plan, place, "expected at least one sample for each replica, got 0");
  }
  SECTION("too many") {
    samples = {plan.micro_batch_size, 1};
    check_fault(plan, place,
                "expected numbers that add up to the " + std::to_string(plan.micro_batch_size) +
                    " samples of a micro-batch, got " + std::to_string(plan.micro_batch_size + 1));
  }
  SECTION("more than any number has") {
    samples = {INT64_MAX, INT64_MAX};
    check_fault(plan, place,
                "expected numbers that add up to the " + std::to_string(plan.micro_batch_size) +
                    " samples of a micro-batch, got more");
  }
  SECTION("beside whole micro-batches") {
    plan.stages[0].replication = Replication::Deal;
    samples = {1, plan.micro_batch_size - 1};
    check_fault(plan, place,
                "expected no such key with \"deal\", as replicas have whole micro-batches, got "
                "shares");
  }
}

TEST_CASE("a GPipe plan keeps all micro-batches in flight at every stage") {
  Plan plan = sound_plan();
  plan.family = ScheduleFamily::GPipe;
  plan.warmup_depths = {4, 4};
  CHECK(faults_of(plan).empty());
  plan.warmup_depths = {4, 3};
  check_fault(plan, "/schedule/warmup_depths/1",
              "expected 4, as GPipe keeps all micro-batches in flight, got 3");
}

TEST_CASE("gradient buckets that mean nothing are refused") {
  Plan plan = sound_plan();
  SECTION("of a single replica") {
    plan.stages[1].gradient_buckets = {Bytes{10}};
    check_fault(plan, "/stages/1/costs/gradient_buckets_bytes",
                "expected no buckets, as a single replica reduces no gradients, got 1");
  }
  SECTION("of no bytes") {
    plan.stages[0].gradient_buckets[1] = Bytes{0};
    check_fault(plan, "/stages/0/costs/gradient_buckets_bytes/1",
                "expected at least 1 byte, got 0");
  }
}

TEST_CASE("a plan without stages says so once") {
  Plan plan = sound_plan();
  plan.stages.clear();
  plan.warmup_depths.clear();
  check_fault(plan, "/stages", "expected at least one stage, got none");
}

TEST_CASE("all faults of a plan are reported together") {
  Plan plan = sound_plan();
  plan.global_batch_size = 7;
  plan.stages[1].layers.begin = 13;
  plan.stages[1].devices = {DeviceIndex{0}};
  plan.warmup_depths = {1, 3};
  std::vector<std::string> places;
  for (const Violation& fault : faults_of(plan)) places.push_back(fault.place);
  CHECK(places == std::vector<std::string>{"/global_batch_size", "/stages/1/layers",
                                           "/stages/1/devices/0", "/schedule/warmup_depths/1"});
}

/// Four stages of five layers on two devices, stage i on device i mod 2; 4 micro-batches.
Plan looped_plan(ScheduleFamily family) {
  Plan plan{.global_batch_size = 8,
            .micro_batch_size = 2,
            .num_micro_batches = 4,
            .family = family,
            .warmup_depths = {4, 3, 2, 1},
            .chunks_per_device = 2,
            .stages = {}};
  for (std::int32_t s = 0; s < 4; ++s) {
    plan.stages.push_back(stage_of({5 * s, 5 * s + 5}, {DeviceIndex{s % 2}}));
  }
  return plan;
}

TEST_CASE("several stages share a device where the family takes turns over them") {
  CHECK(faults_of(looped_plan(ScheduleFamily::Interleaved)).empty());
  CHECK(faults_of(looped_plan(ScheduleFamily::BreadthFirst)).empty());
  Plan plan = looped_plan(ScheduleFamily::Interleaved);
  SECTION("not with one chunk per device") {
    plan.chunks_per_device = 1;
    check_fault(plan, "/schedule/chunks_per_device",
                "expected at least 2, the turns that interleaved takes, got 1");
  }
  SECTION("not where the chunks do not divide the stages") {
    plan.chunks_per_device = 3;
    check_fault(plan, "/schedule/chunks_per_device",
                "expected a divisor of the number of stages, 4, got 3");
  }
  SECTION("not on other devices than their first stage's") {
    plan.stages[3].devices = {DeviceIndex{2}};
    check_fault(plan, "/stages/3/devices",
                "expected the devices of stage 1, as interleaved has 2 stages on each device");
  }
  SECTION("not dealt") {
    for (StagePlan& stage : plan.stages) stage.replication = Replication::Deal;
    CHECK(faults_of(plan).empty());  // a single replica gets all of them either way
    for (std::int32_t s = 0; s < 4; ++s) {
      plan.stages[static_cast<std::size_t>(s)].devices = {DeviceIndex{s % 2 * 2},
                                                          DeviceIndex{s % 2 * 2 + 1}};
    }
    const std::vector<Violation> faults = faults_of(plan);
    REQUIRE(faults.size() == 4);
    CHECK(faults[0].message ==
          "expected \"split\", as interleaved deals no micro-batches, got \"deal\"");
  }
  SECTION("not for a number of micro-batches that leaves a turn short") {
    plan.num_micro_batches = 8;
    plan.micro_batch_size = 1;
    CHECK(faults_of(plan).empty());
    plan.num_micro_batches = 1;
    plan.micro_batch_size = 8;
    plan.warmup_depths = {1, 1, 1, 1};
    check_fault(plan, "/num_micro_batches",
                "expected a multiple of 2, the groups of devices that take turns, got 1");
  }
  SECTION("not where the family has one stage per device") {
    plan.family = ScheduleFamily::OneFOneB;
    CHECK(faults_of(plan).front().message == "expected 1, as 1f1b has one stage per device, got 2");
  }
}

TEST_CASE("a V has two stages per device, the second way back") {
  Plan plan = looped_plan(ScheduleFamily::ZeroBubbleV);
  plan.order.resize(2);
  const std::vector<Violation> faults = faults_of(plan);
  REQUIRE(faults.size() == 2);
  CHECK(faults[0].place == "/stages/2/devices");
  CHECK(faults[0].message ==
        "expected the devices of stage 1, as zb-v has 2 stages on each device");
  std::swap(plan.stages[2].devices, plan.stages[3].devices);
  CHECK(faults_of(plan).empty());
}

TEST_CASE("an order stands where the family carries one, a list for each group of devices") {
  Plan plan = looped_plan(ScheduleFamily::BreadthFirst);
  plan.order.resize(2);
  check_fault(plan, "/schedule/order",
              "expected null, as the order of breadth-first follows from the depths");
  plan.family = ScheduleFamily::Given;
  CHECK(faults_of(plan).empty());
  plan.order.resize(3);
  check_fault(plan, "/schedule/order", "expected a list for each of 2 groups of devices, got 3");
}

TEST_CASE("stages are grouped by the devices that they share") {
  using Groups = std::vector<std::vector<StageIndex>>;
  CHECK(stages_by_device_group(looped_plan(ScheduleFamily::Interleaved)) ==
        Groups{{StageIndex{0}, StageIndex{2}}, {StageIndex{1}, StageIndex{3}}});
  CHECK(stages_by_device_group(sound_plan()) == Groups{{StageIndex{0}}, {StageIndex{1}}});
}

}  // namespace
}  // namespace dapple
