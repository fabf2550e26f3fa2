#include "dapple/search/exact/exact_search.h"

#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "../../../support/plans.h"
#include "dapple/cost/device_groups.h"

using namespace dapple;

namespace {

const auto kNeverStop = [] { return false; };

/// Two layers of 10 forward and 20 backward per sample, nothing to send or to reduce.
ModelProfile two_layers() {
  return small::model_of({{.forward = 10, .backward = 20}, {.forward = 10, .backward = 20}});
}

}  // namespace

TEST_CASE("candidates come by rising bound, each of them once, below the threshold only") {
  // Two devices, batch 2 in micro-batches of 1. Both layers on one device: 2 * 60 = 120. One layer
  // each: the second stage's 2 * 30 between the first's 10 and 20, 90. Recomputation adds 10 to a
  // backward: of the first stage 10 + 60 + 30 = 100, of the second 10 + 80 + 20 = 110, of both 10 +
  // 80 + 30 = 120; of one stage of both layers 2 * 80 = 160, not below the threshold.
  const ModelProfile profile = two_layers();
  const Topology topology(small::cluster({.servers = 1, .devices = 2}));
  search::ExactSearch search(profile, topology, {.global_batch_size = 2, .micro_batch_size = 1});
  search.prepare({150}, {.should_stop = kNeverStop});
  CHECK(search.bound() == Duration{90});
  search.advance({150}, {.candidates = 100, .states = 1000});
  CHECK(search.is_exhausted());
  CHECK(search.open({150}) == 5);
  CHECK(search.open({120}) == 3);
  std::vector<std::int64_t> bounds;
  std::vector<std::size_t> stages;
  while (search.waiting() > 0) {
    const search::Candidate candidate = search.take();
    bounds.push_back(candidate.bound.ns);
    stages.push_back(candidate.stages.size());
  }
  CHECK(bounds == std::vector<std::int64_t>{90, 100, 110, 120, 120});
  CHECK(stages.front() == 2);
  CHECK(search.bound() == Duration{150});
  CHECK(search.open({150}) == 0);
}

TEST_CASE("functions that no part behind completes below the threshold are not kept") {
  // Two devices, three layers of 10 forward and 20 backward, four micro-batches. Two layers in one
  // stage have 4 * 60 = 240 to do. Behind a first stage of one layer they begin 10 later, which is
  // not below 245. In front of one they have to wait 10 for the first gradient if they hold two
  // micro-batches, but not with three. So no function of one layer is kept, and that of two layers
  // for one device in use, and for two of which one is idle.
  const ModelProfile profile =
      small::model_of(std::vector<small::LayerFigures>(3, {.forward = 10, .backward = 20}));
  const Topology topology(small::cluster({.servers = 1, .devices = 2}));
  search::ExactSearch search(profile, topology, {.global_batch_size = 4, .micro_batch_size = 1});
  search.prepare({245}, {.should_stop = kNeverStop});
  CHECK(search.bound() == Duration{240});
  CHECK(search.kept() == 2);
}

TEST_CASE("a stage may have less work than the part of it without its first layer") {
  // One device, two samples, three layers of 30, of which every second one recomputes: the second
  // in 1, the last in 100. All three take 2 * 91. The last two would take 2 * 160, which is not
  // below the threshold.
  const ModelProfile profile = small::with_every_nth(
      small::model_of(std::vector<small::LayerFigures>(3, {.forward = 10, .backward = 20})), 2,
      {1, 1, 100});
  search::SearchProblem problem{.global_batch_size = 2, .micro_batch_size = 1};
  // With a second device the last two layers may have others in front, until the pin is looked at.
  std::int32_t devices = 1;
  SECTION("on one device") {}
  SECTION("on one of two devices") {
    devices = 2;
    problem.pins.stages = 1;
  }
  const Topology topology(small::cluster({.servers = 1, .devices = devices}));
  search::ExactSearch search(profile, topology, problem);
  // The search may have listed its stages before a faster plan was found.
  search.prepare({400}, {.should_stop = kNeverStop});
  CHECK(search.bound() <= Duration{182});
  search.advance({200}, {.candidates = 100, .states = 1000});
  REQUIRE(search.waiting() == 1);
  const search::Candidate candidate = search.take();
  CHECK(candidate.bound == Duration{182});
  CHECK(candidate.stages.size() == 1);
}

TEST_CASE(
    "a search whose preparation is stopped, too long or too large claims what work alone takes") {
  // 2 samples * 60 on two devices.
  const ModelProfile profile = two_layers();
  const Topology topology(small::cluster({.servers = 1, .devices = 2}));
  search::Allowance::Limits limits;
  SECTION("stopped") {
    limits.should_stop = [] { return true; };
  }
  SECTION("too long") {
    limits.work = 0;
  }
  SECTION("too large") {
    limits.kept = {};
  }
  search::ExactSearch search(profile, topology, {.global_batch_size = 2, .micro_batch_size = 1});
  search.prepare({150}, limits);
  CHECK(!search.is_prepared());
  CHECK(search.bound() <= Duration{60});
  CHECK(search.bound() >= Duration{55});
  search.advance({150}, {.candidates = 100, .states = 1000});
  CHECK(search.waiting() == 0);
}

TEST_CASE("once the end of the allowance is noticed no more stages are bounded") {
  // One step is allowed. It is counted for the stages on one device that end behind the first
  // layer, whose column counts one more; those that end behind the second layer count one, at which
  // the end is noticed. Each of 14 larger numbers of devices counts one before its stages are given
  // up, and the boundaries in front count 16. Then a last step is counted, and the 5 x 3 numbers in
  // the layer table of 16 samples.
  const ModelProfile profile = two_layers();
  const Topology topology(small::cluster({.servers = 1, .devices = 16}));
  search::ExactSearch search(profile, topology, {.global_batch_size = 16, .micro_batch_size = 16});
  search.prepare({10'000}, {.work = 1, .should_stop = kNeverStop});
  CHECK(!search.is_prepared());
  CHECK(search.work() == 1 + 1 + 1 + 14 + 16 + 1 + 5 * 3);
}

TEST_CASE("no number of replicas stands for others where they shard state") {
  // The placements of 32 devices in four servers are not all tried. A micro-batch of 16 samples
  // gives 12 to 15 replicas 2 at most each, as it does 8; yet weights, gradients and a bucket of
  // 100 bytes each leave 100 of 400, which is a part of the 1,200 of the state on 12 or more.
  ModelProfile profile = small::model_of({{.forward = 10, .backward = 20, .parameters = 100}});
  profile.optimizer.state_bytes_per_parameter_byte = {12 * kOne.billionths};
  TopologyDescription description = small::cluster({.servers = 4, .devices = 8});
  description.devices.front().memory = {400};
  description.devices.front().reserved = {};
  description.shards_optimizer = true;
  const Topology topology(description);
  search::ExactSearch search(profile, topology, {.global_batch_size = 16, .micro_batch_size = 16});
  search.prepare({10'000}, {.should_stop = kNeverStop});
  CHECK(!search.covers_all_placements());
  search.advance({10'000}, {.candidates = 1000, .states = 10'000});
  CHECK(search.is_exhausted());
  std::set<std::size_t> replicas;
  while (search.waiting() > 0) replicas.insert(search.take().stages.front().devices.size());
  CHECK(replicas == std::set<std::size_t>{12, 13, 14, 15, 16});
}

namespace {

/// The layers in one form, and in another one whose groups have as many devices.
ModelProfile in_two_forms(const std::vector<small::LayerFigures>& one,
                          const std::vector<small::LayerFigures>& other) {
  ModelProfile profile = small::model_of(one);
  profile.stage_forms = {small::model_of(other)};
  return profile;
}

TopologyDescription one_server(std::int32_t devices, std::int64_t memory) {
  TopologyDescription description = small::cluster({.servers = 1, .devices = devices});
  description.devices.front().memory = {memory};
  return description;
}

}  // namespace

TEST_CASE("a stage has the forward, the backward and the reduction of one form") {
  // Two samples on two devices. The first form takes 10 + 20 a sample and reduces 100 bytes in 100,
  // so that one device does both samples in 60; the second takes 20 + 40 and reduces nothing, so
  // that two devices take 60. The quicker passes without the reduction would be 30, which is also
  // what the work alone takes.
  const ModelProfile profile = in_two_forms({{.forward = 10, .backward = 20, .parameters = 100}},
                                            {{.forward = 20, .backward = 40}});
  const Topology topology(small::cluster({.servers = 1, .devices = 2}));
  search::ExactSearch search(profile, topology, {.global_batch_size = 2, .micro_batch_size = 2});
  search.prepare({1000}, {.should_stop = kNeverStop});
  CHECK(search.bound() == Duration{60});
}

TEST_CASE("a form whose stages fit no device bounds nothing, though its work is the least") {
  // Weights and gradients of 100 bytes each do not fit in 150, those of 50 do. Two samples take 60
  // in the form that does not fit, as the work alone does, and 120 in the other.
  const ModelProfile profile = in_two_forms({{.forward = 10, .backward = 20, .parameters = 100}},
                                            {{.forward = 20, .backward = 40, .parameters = 50}});
  const Topology topology(one_server(1, 150));
  search::ExactSearch search(profile, topology, {.global_batch_size = 2, .micro_batch_size = 1});
  search.prepare({1000}, {.should_stop = kNeverStop});
  CHECK(search.bound() == Duration{120});
}

TEST_CASE("a form that is slower everywhere is kept, as it may hold more micro-batches") {
  // Four micro-batches on two devices of 100 bytes. A layer keeps weights and gradients of 10 bytes
  // each and, of each micro-batch, 60 in the first form and 40 in the second, which takes 22 back
  // in place of 20. Two layers fit on no device, so that each has a stage. In the first form the
  // first stage holds one micro-batch, and four round trips of 60 are 240. In the second it holds
  // two: F and B0 end at 20 and 62, B1 and F3 at 94 and 104, and B3 follows that of the last stage
  // from 134 to 156.
  const ModelProfile profile =
      in_two_forms(std::vector<small::LayerFigures>(
                       2, {.forward = 10, .backward = 20, .parameters = 10, .stash = 60}),
                   std::vector<small::LayerFigures>(
                       2, {.forward = 10, .backward = 22, .parameters = 10, .stash = 40}));
  const Topology topology(one_server(2, 100));
  search::SearchProblem problem{.global_batch_size = 4, .micro_batch_size = 1};
  problem.pins.recompute = false;
  search::ExactSearch search(profile, topology, problem);
  search.prepare({1000}, {.should_stop = kNeverStop});
  CHECK(search.bound() <= Duration{156});
  search.advance({1000}, {.candidates = 100, .states = 1000});
  CHECK(search.is_exhausted());
  std::map<std::pair<std::int32_t, std::int32_t>, Duration> bounds;
  while (search.waiting() > 0) {
    const search::Candidate candidate = search.take();
    REQUIRE(candidate.stages.size() == 2);
    bounds[{candidate.stages[0].form.value, candidate.stages[1].form.value}] = candidate.bound;
  }
  REQUIRE(bounds.size() == 4);
  CHECK(bounds.at({0, 0}) == Duration{240});
  CHECK(bounds.at({1, 0}) <= Duration{156});
}

namespace {

/// A layer on 40 devices in five servers with a NIC of a byte per nanosecond each, in groups of
/// two. A device holds 1,400 bytes of its parameters; with experts other ones than the other device
/// of its group, which also has other samples.
PlanInputs forty_devices(const Parallelism& form, std::int64_t forward) {
  ModelProfile profile = small::model_of({{.forward = forward, .backward = 2 * forward}});
  Layer& layer = profile.layers.front();
  const std::int64_t of_experts = form.experts > 1 ? 1400 : 0;
  layer.parameters = {1400};
  layer.variants.push_back({.parallelism = form,
                            .parameters = {1400},
                            .expert_parameters = {of_experts},
                            .fixed_overhead = {},
                            .measurements = layer.measurements,
                            .forward_collectives = {},
                            .backward_collectives = {}});
  const Topology topology(
      small::cluster({.servers = 5, .devices = 8, .inside = {small::bytes_per_ns(100), {}}}));
  return std::get<PlanInputs>(group_inputs(profile, topology, form));
}

/// The bound of 13 samples at once on so many groups, or on any number.
std::int64_t bound_of_groups(const PlanInputs& inputs, std::optional<std::int32_t> groups) {
  const Topology topology(inputs.topology);
  search::SearchProblem problem{.global_batch_size = 13, .micro_batch_size = 13};
  problem.pins.replicas = groups;
  search::ExactSearch search(inputs.profile, topology, problem);
  search.prepare({1'000'000}, {.should_stop = kNeverStop});
  CHECK(!search.covers_all_placements());
  return search.bound().ns;
}

}  // namespace

TEST_CASE("a number of groups stands for others with its share by the least figures of all") {
  // Seven groups have two samples at most, as have eight, which reduce faster: four of them on each
  // of two servers, where seven are one ring through all NICs.
  PlanInputs inputs;
  std::int64_t expected = 0;
  SECTION("context parallelism") {
    // Two samples of 900. Each device of a group reduces 700 bytes, through half a NIC in 1,400 and
    // among four within a server in 10.5, besides 14 for those of the group.
    inputs = forty_devices({.context = 2}, 300);
    expected = 1800 + 1400 + 25;
  }
  SECTION("expert parallelism") {
    // One sample of 3,000 for each device, which reduces 1,400 bytes in 2,800 and 21.
    inputs = forty_devices({.experts = 2}, 1000);
    expected = 3000 + 2800 + 21;
  }
  CHECK(bound_of_groups(inputs, 8) == expected);
  CHECK(bound_of_groups(inputs, 7) > expected);
  CHECK(bound_of_groups(inputs, std::nullopt) == expected);
  // The search tries eight besides seven, as these fill servers.
  const Topology topology(inputs.topology);
  search::ExactSearch search(inputs.profile, topology,
                             {.global_batch_size = 13, .micro_batch_size = 13});
  search.prepare({expected + 1}, {.should_stop = kNeverStop});
  search.advance({expected + 1}, {.candidates = 1000, .states = 10'000});
  REQUIRE(search.waiting() == 1);
  CHECK(search.take().stages.front().devices.size() == 8);
  for (std::int32_t groups = 1; groups <= 13; ++groups) {
    CHECK(bound_of_groups(inputs, groups) >= expected);
  }
}
