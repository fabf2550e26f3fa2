#include "dapple/search/decision_diagram/decision_diagram.h"

#include <catch2/catch.hpp>
#include <vector>

#include "../../../support/plans.h"

using namespace dapple;

namespace {

/// Layers of 10 forward and 20 backward per sample, with 100 bytes to stash, and nothing to send or
/// to reduce.
ModelProfile layers_alike(std::size_t count) {
  return small::model_of(
      std::vector<small::LayerFigures>(count, {.forward = 10, .backward = 20, .stash = 100}));
}

/// One server of so many devices with that memory.
Topology server(std::int32_t devices, std::int64_t memory) {
  TopologyDescription description = small::cluster({.servers = 1, .devices = devices});
  description.devices.front().memory = {memory};
  description.devices.front().reserved = {};
  return Topology(std::move(description));
}

}  // namespace

TEST_CASE("the bound of a chain of equal layers is attained") {
  // Two layers on two devices, four micro-batches of a sample: five times 30 with two stages.
  const ModelProfile profile = layers_alike(2);
  const Topology topology = server(2, 10'000);
  const search::SearchProblem problem{.global_batch_size = 4, .micro_batch_size = 1};
  search::DecisionDiagram diagram(profile, topology, problem, Duration{1000}, {});
  CHECK(diagram.relaxed_bound(4) == Duration{150});
  const std::vector<search::Candidate> plans =
      diagram.restricted_plans(4, search::order_by_number(topology));
  REQUIRE(plans.size() == 2);
  CHECK(plans[0].bound == Duration{150});
  CHECK(plans[0].stages.size() == 2);
  CHECK(plans[0].depths == std::vector<std::int64_t>{2, 1});
  CHECK(plans[0].stages[0].devices == std::vector<DeviceIndex>{{0}});
  CHECK(plans[0].stages[1].devices == std::vector<DeviceIndex>{{1}});
  // One stage has the work of four micro-batches of both layers.
  CHECK(plans[1].bound == Duration{240});
}

TEST_CASE("a diagram closes a threshold that no plan is below") {
  const ModelProfile profile = layers_alike(2);
  const Topology topology = server(2, 10'000);
  const search::SearchProblem problem{.global_batch_size = 4, .micro_batch_size = 1};
  search::DecisionDiagram diagram(profile, topology, problem, Duration{150}, {});
  CHECK(diagram.relaxed_bound(1) == Duration{150});
  CHECK(diagram.restricted_plans(4, search::order_by_number(topology)).empty());
}

TEST_CASE("a stage in a diagram may have less work than without its first layer") {
  // Of three layers of 30 on one device every second one recomputes, the second in 1, the last in
  // 100. All three take 91 for each of two micro-batches, the last two alone 160.
  const ModelProfile profile = small::with_every_nth(
      small::model_of(std::vector<small::LayerFigures>(3, {.forward = 10, .backward = 20})), 2,
      {1, 1, 100});
  const Topology topology = server(1, 10'000);
  const search::SearchProblem problem{.global_batch_size = 2, .micro_batch_size = 1};
  search::DecisionDiagram diagram(profile, topology, problem, Duration{200}, {});
  CHECK(diagram.relaxed_bound(4) == Duration{182});
  const std::vector<search::Candidate> plans =
      diagram.restricted_plans(4, search::order_by_number(topology));
  REQUIRE(plans.size() == 1);
  CHECK(plans[0].bound == Duration{182});
}

TEST_CASE("neighbours of equal depth take turns") {
  // Three layers, a device and two micro-batches in flight for each, eight micro-batches. At depths
  // (2, 2, 1) the second stage begins a forward only when the first has ended a backward: after the
  // first forward, six round trips of 60 through both follow, and one through all three of 90. At
  // (2, 1, 1) the last two stages take turns: after 10 of the first stage, seven round trips of 60
  // and the last one, and 20 back. Depth alone would allow four times 90 and one backward.
  const ModelProfile profile = layers_alike(3);
  const Topology topology = server(3, 200);
  search::SearchProblem problem{.global_batch_size = 8, .micro_batch_size = 1};
  problem.pins.recompute = false;
  search::DecisionDiagram diagram(profile, topology, problem, Duration{600}, {});
  CHECK(diagram.relaxed_bound(8) == Duration{10 + 6 * 60 + 90});
  const std::vector<search::Candidate> plans =
      diagram.restricted_plans(8, search::order_by_number(topology));
  REQUIRE(!plans.empty());
  CHECK(plans.front().bound == Duration{10 + 6 * 60 + 90});
  CHECK(plans.front().depths == std::vector<std::int64_t>{2, 2, 1});
}

TEST_CASE("without steps or memory the bound is that of the work") {
  // Four samples of 60 on two devices, less a margin for rounding.
  const ModelProfile profile = layers_alike(2);
  const Topology topology = server(2, 10'000);
  const search::SearchProblem problem{.global_batch_size = 4, .micro_batch_size = 1};
  search::Allowance::Limits limits;
  SECTION("stopped") {
    limits.should_stop = [] { return true; };
    limits.work = 0;
  }
  SECTION("no steps") {
    limits.work = 0;
  }
  SECTION("no memory") {
    limits.kept = {};
  }
  search::DecisionDiagram diagram(profile, topology, problem, Duration{1000}, limits);
  CHECK(diagram.is_over());
  const Duration of_work = search::DecisionDiagram::bound_of_work(profile, topology, problem);
  CHECK(diagram.relaxed_bound(4) == of_work);
  CHECK(of_work <= Duration{120});
  CHECK(of_work >= Duration{110});
  CHECK(diagram.restricted_plans(4, search::order_by_number(topology)).empty());
}

TEST_CASE("with some cuts, plans are nearly as good as with all") {
  // With 400 equal layers, stages may begin at every second cut.
  const ModelProfile profile = layers_alike(400);
  const Topology topology = server(2, 1'000'000);
  const search::SearchProblem problem{.global_batch_size = 4, .micro_batch_size = 1};
  const Duration most{100'000};
  search::DecisionDiagram some(profile, topology, problem, most, {}, search::Cuts::Some);
  const std::vector<search::Candidate> plans =
      some.restricted_plans(2, search::order_by_number(topology));
  REQUIRE(!plans.empty());
  for (const search::Candidate& plan : plans) {
    for (const StagePlan& stage : plan.stages) CHECK(stage.layers.begin % 2 == 0);
  }
  search::DecisionDiagram all(profile, topology, problem, most, {});
  const Duration bound = all.relaxed_bound(4);
  CHECK(plans.front().bound >= bound);
  CHECK(100 * plans.front().bound <= 101 * bound);
}

TEST_CASE("devices of other kinds come first in orders by kind") {
  // A device of kind 0, two of kind 1, and one of kind 0.
  TopologyDescription description = small::cluster({.servers = 1, .devices = 1});
  DeviceKind other = description.devices.front();
  other.name = "other";
  description.devices.push_back(other);
  ServerGroup pair = description.servers.front();
  pair.name = "pair";
  pair.device = other.name;
  pair.devices = 2;
  ServerGroup last = description.servers.front();
  last.name = "last";
  description.servers.push_back(pair);
  description.servers.push_back(last);
  const Topology topology(std::move(description));
  const std::vector<search::DeviceOrder> orders = search::orders_by_kind(topology);
  REQUIRE(orders.size() == 2);
  CHECK(orders[0].devices == std::vector<DeviceIndex>{{0}, {3}, {1}, {2}});
  CHECK(orders[1].devices == std::vector<DeviceIndex>{{1}, {2}, {0}, {3}});
  CHECK(search::orders_by_kind(server(4, 1)).empty());
}

TEST_CASE("a node does not stand for one with quicker transfers in front of it") {
  // Three layers that take 10 and 20 with one sample or two, on four servers of a device. The first
  // one fits only by itself on two devices. Behind it the others have a stage each, or one on two
  // devices, which reduces 10 bytes besides. In front of that stage a sample of 1,000 bytes, less 2
  // for rounding, passes each NIC, in front of the two stages both pass one.
  ModelProfile profile =
      small::model_of({{.forward = 10, .backward = 20, .output = 2000, .stash = 180'000},
                       {.forward = 10, .backward = 20, .stash = 50'000},
                       {.forward = 10, .backward = 20, .parameters = 10, .stash = 50'000}});
  profile.batch_scaling = BatchScaling::Floor;
  for (Layer& layer : profile.layers) layer.measurements.front().batch_size = 2;
  TopologyDescription description = small::cluster({.servers = 4, .devices = 1});
  description.devices.front().memory = {110'000};
  const Topology topology(description);
  search::SearchProblem problem{.global_batch_size = 2, .micro_batch_size = 2};
  problem.pins.recompute = false;
  search::DecisionDiagram diagram(profile, topology, problem, Duration{10'000}, {});
  CHECK(diagram.relaxed_bound(8) == Duration{10 + 998 + 60 + 998 + 20});
}
