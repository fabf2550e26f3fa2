// Groups of devices worked by hand: what each device of a group has of ports, NICs and roots.

#include <catch2/catch.hpp>

#include "../../support/models.h"
#include "../../support/plans.h"
#include "../topology/meshes.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/cost/cost_model.h"
#include "dapple/cost/device_groups.h"

namespace dapple {
namespace {

using namespace small;

const GroupedTopology& grouped_of(const std::variant<GroupedTopology, NoGroups>& result) {
  const auto* none = std::get_if<NoGroups>(&result);
  INFO((none == nullptr ? "" : none->reason));
  REQUIRE(none == nullptr);
  return std::get<GroupedTopology>(result);
}

/// The shape of groups of the only kind of device.
const GroupShape& only_shape(const GroupedTopology& grouped) {
  REQUIRE(grouped.shapes.size() == 1);
  return grouped.shapes.begin()->second;
}

std::string reason_of(const std::variant<GroupedTopology, NoGroups>& result) {
  const auto* none = std::get_if<NoGroups>(&result);
  return none == nullptr ? "" : none->place + ": " + none->reason;
}

Link nic(std::int64_t gigabytes, std::int64_t latency = 1) {
  return {bytes_per_ns(gigabytes), {latency}};
}

TEST_CASE("a group is a device named after all of its own") {
  const Topology topology(cluster({.servers = 2, .devices = 4}));
  const Topology grouped(grouped_of(group_devices(topology, {.tensor = 2})).description);
  REQUIRE(grouped.device_count() == 4);
  CHECK(grouped.device({1}).name == "node0:2-3");
  CHECK(grouped.find_device("node1:0-1") == DeviceIndex{2});
  CHECK(grouped.memory_limit({0}) == topology.memory_limit({0}));
}

TEST_CASE("each device of a group has an equal part of a NIC") {
  // Both groups use the only NIC of 8 bytes a nanosecond.
  const Topology topology(cluster({.servers = 2, .devices = 4, .nics = {nic(8)}}));
  const Topology grouped(grouped_of(group_devices(topology, {.tensor = 2})).description);
  CHECK(grouped.nic_of({0}) == grouped.nic_of({1}));
  CHECK(grouped.nic_link({0}, 0).bandwidth == bytes_per_ns(4));
}

TEST_CASE("NICs of one group become one, as fast as its narrowest part") {
  ClusterFigures figures{.servers = 2, .devices = 4};
  figures.nics = {nic(8, 1), nic(6, 5), nic(8, 1), nic(8, 2)};
  const Topology topology(cluster(figures));
  const Topology grouped(grouped_of(group_devices(topology, {.tensor = 2})).description);
  CHECK(grouped.nic_link({0}, 0).bandwidth == bytes_per_ns(6));
  CHECK(grouped.nic_link({0}, 0).latency == Duration{5});
  CHECK(grouped.nic_link({0}, 1).bandwidth == bytes_per_ns(8));
  const Topology whole(grouped_of(group_devices(topology, {.tensor = 4})).description);
  CHECK(whole.device_count() == 2);
  CHECK(whole.nic_link({0}, 0).bandwidth == bytes_per_ns(6));
}

TEST_CASE("a reduction between groups takes as long as that of each device's part on shared NICs") {
  // Two servers of two devices with one NIC of 2 bytes a nanosecond: both devices reduce 1,000
  // bytes at the same time, so that 2,000 bytes cross the NIC; a single ring of two would take
  // 1,000 ns.
  const Topology topology(cluster({.servers = 2, .devices = 2, .nics = {nic(2, 0)}}));
  const Topology grouped(grouped_of(group_devices(topology, {.tensor = 2})).description);
  CHECK(AllReduceModel({DeviceIndex{0}, DeviceIndex{1}}, grouped).time({1'000}) == Duration{1'000});
  CHECK(AllReduceModel({DeviceIndex{0}, DeviceIndex{2}}, topology).time({1'000}) == Duration{500});
}

TEST_CASE("the ring of a group is that of its devices") {
  TopologyDescription description =
      cluster({.servers = 2, .devices = 4, .inside = {bytes_per_ns(3), {11}}});
  for (const bool is_measured : {false, true}) {
    if (is_measured) {
      description.servers[0].bus_bandwidth.push_back(
          {.source = "", .servers = 1, .devices = 2, .points = {{{1'000}, {1'000'000'000}}}});
    }
    const Topology topology(description);
    const GroupRing ring = only_shape(grouped_of(group_devices(topology, {.tensor = 2}))).rings[0];
    CHECK(ring.members == 2);
    CHECK(ring.measured.empty() != is_measured);
    const AllReduceModel model({DeviceIndex{0}, DeviceIndex{1}}, topology);
    for (const std::int64_t size : {1, 999, 1'000, 123'457}) {
      CHECK(collective_time(CollectiveKind::AllReduce, {size}, ring) == model.time({size}));
    }
  }
}

TEST_CASE("a link matrix, a remainder and NICs across groups allow no groups") {
  CHECK(reason_of(group_devices(Topology(cluster({.servers = 1, .devices = 3})), {.tensor = 2})) ==
        "/servers/0/devices: groups of 2 devices need a multiple of that in each server, and node "
        "has 3");
  CHECK(reason_of(group_devices(Topology(full_mesh(4, {bytes_per_ns(1), {}})), {.tensor = 2}))
            .starts_with("/servers/0/links: groups of devices need a switch within the server"));
  TopologyDescription description = cluster({.servers = 2, .devices = 4});
  description.servers[0].nics = {{.source = "", .link = nic(1), .devices = {0, 2}},
                                 {.source = "", .link = nic(1), .devices = {1, 3}}};
  CHECK(reason_of(group_devices(Topology(description), {.tensor = 2})) ==
        "/servers/0/nics: a group of 2 devices in node has several NICs, of which another group "
        "uses one");
}

TEST_CASE("servers with other links inside allow no groups") {
  TopologyDescription description = cluster({.servers = 1, .devices = 2});
  description.servers.push_back(description.servers.front());
  description.servers[1].name = "other";
  description.servers[1].links.port = {bytes_per_ns(2), {}};
  CHECK(reason_of(group_devices(Topology(description), {.tensor = 2})) ==
        "/servers/1/links: groups of devices of one kind need the same links within every server, "
        "and those of other are not those of node");
  // Those of another kind of device may differ.
  description.devices.push_back(description.devices.front());
  description.devices[1].name = "a kind that comes first";
  description.servers[1].device = description.devices[1].name;
  const Topology mixed(description);
  const auto shapes = grouped_of(group_devices(mixed, {.tensor = 2})).shapes;
  CHECK(shapes.at(description.devices[0].name).rings[0].bandwidth == bytes_per_ns(1));
  CHECK(shapes.at(description.devices[1].name).rings[0].bandwidth == bytes_per_ns(2));
  const auto copies = grouped_of(group_devices(mixed, {.context = 2})).shapes;
  CHECK(copies.at(description.devices[0].name).copies.bandwidth == bytes_per_ns(1));
  CHECK(copies.at(description.devices[1].name).copies.bandwidth == bytes_per_ns(2));
}

/// A layer of 100 ns and its variant for two tensor ranks, which reduces 1,000 bytes for each
/// sample in its forward.
ModelProfile divided_layer(const std::string& device) {
  ModelProfile profile = small::model_of({{.forward = 100, .backward = 200}});
  profile.device = device;
  Layer& layer = profile.layers.front();
  LayerVariant& variant = layer.variants.emplace_back();
  variant.parallelism.tensor = 2;
  variant.measurements = layer.measurements;
  variant.forward_collectives = {{.size_per_sample = {1'000}}};
  return profile;
}

TEST_CASE("each kind of server has the collectives of its own links") {
  // Rings of two over 1, 2 and 4 bytes a nanosecond, so that 1,000 bytes take 1,000, 500 and 250
  // ns. The second kind has the times of the first by a factor, and the third the same factor.
  TopologyDescription description = cluster({.servers = 1, .devices = 2});
  const std::string measured = description.devices.front().name;
  for (const std::int64_t bandwidth : {2, 4}) {
    DeviceKind& kind = description.devices.emplace_back(description.devices.front());
    kind.name = measured + std::to_string(bandwidth);
    kind.time_scale = {{measured, {kOne.billionths / 2}}};
    ServerGroup& servers = description.servers.emplace_back(description.servers.front());
    servers.name = "servers" + std::to_string(bandwidth) + "x";
    servers.device = kind.name;
    servers.links.port.bandwidth = bytes_per_ns(bandwidth);
  }
  const auto inputs = std::get<PlanInputs>(
      group_inputs(divided_layer(measured), Topology(description), {.tensor = 2}));
  const Topology grouped(inputs.topology);
  REQUIRE(grouped.device_count() == 3);
  const CostModel costs(inputs.profile, grouped);
  const std::vector<std::int64_t> forwards{100 + 1'000, 50 + 500, 50 + 250};
  for (std::int32_t device = 0; device < 3; ++device) {
    const std::int32_t kind = grouped.device({device}).kind;
    CHECK(costs.table(1, kind).forward({0, 1}).ns == forwards[static_cast<std::size_t>(device)]);
    CHECK(costs.table(1, kind).backward({0, 1}).ns == (device == 0 ? 200 : 100));
  }
  // Gradients of 1,000 bytes over two context ranks: a reduce-scatter and an all-gather of 500 each
  // way. A stage on several kinds waits for the slowest.
  ModelProfile whole = divided_layer(measured);
  Layer& layer = whole.layers.front();
  layer.parameters = {1'000};
  layer.variants.front().parallelism = {.context = 2};
  layer.variants.front().parameters = {1'000};
  const auto copies =
      std::get<PlanInputs>(group_inputs(whole, Topology(description), {.context = 2}));
  const Topology of_copies(copies.topology);
  const CostModel of_context(copies.profile, of_copies);
  const AllReduceModel alone({DeviceIndex{0}}, of_copies);
  for (std::int32_t kind = 0; kind < 3; ++kind) {
    CHECK(of_context.update({0, 1}, 1, {kind}, alone).ns == 1'000 >> kind);
  }
  CHECK(of_context.update({0, 1}, 1, {1, 2}, alone).ns == 500);
  CHECK(of_context.update({0, 1}, 1, {2, 0}, alone).ns == 1'000);
  // Where all links are the same, kinds are told apart by their factors alone.
  for (ServerGroup& servers : description.servers) servers.links.port.bandwidth = bytes_per_ns(1);
  const auto alike = std::get<PlanInputs>(
      group_inputs(divided_layer(measured), Topology(description), {.tensor = 2}));
  CHECK(alike.profile.other_devices.empty());
  CHECK(alike.profile.other_groups.empty());
}

TEST_CASE("forms that tell other kinds apart by their links are not mixed") {
  // All-reduces over four devices were measured on the second kind alone, so that four tensor ranks
  // have other collectives there, and twice two have the same.
  TopologyDescription description = cluster({.servers = 1, .devices = 4});
  const std::string measured = description.devices.front().name;
  DeviceKind& kind = description.devices.emplace_back(description.devices.front());
  kind.name = "other";
  kind.time_scale = {{measured, kOne}};
  ServerGroup& servers = description.servers.emplace_back(description.servers.front());
  servers.name = "others";
  servers.device = kind.name;
  servers.bus_bandwidth = {
      {.source = "", .servers = 1, .devices = 4, .points = {{{1'000}, {1'000'000}}}}};
  ModelProfile profile = divided_layer(measured);
  LayerVariant wide = profile.layers.front().variants.front();
  wide.parallelism.tensor = 4;
  profile.layers.front().variants.push_back(wide);
  const Topology topology(description);
  const Parallelism four{.tensor = 4};
  const Parallelism twice_two{.tensor = 2, .group_replicas = 2};
  const auto one = std::get<PlanInputs>(group_inputs(profile, topology, four));
  const auto other = std::get<PlanInputs>(group_inputs(profile, topology, twice_two));
  CHECK(one.profile.other_devices.size() == 1);
  CHECK(other.profile.other_devices.empty());
  CHECK(mixing_fault(one, other) ==
        "its collectives tell other from other kinds by its links, or those of tensor 4 do");
  CHECK(std::holds_alternative<NoGroups>(group_inputs(profile, topology, four, {twice_two})));
  // With the same links everywhere they are.
  description.servers[1].bus_bandwidth.clear();
  CHECK(std::holds_alternative<PlanInputs>(
      group_inputs(profile, Topology(description), four, {twice_two})));
}

TEST_CASE("a kind that is named like the times of another by its links keeps its own") {
  // Kind "b" has the times of "a" by a factor, and other links; so would a third kind be called
  // whose links are those of "a".
  TopologyDescription description = cluster({.servers = 1, .devices = 2});
  description.devices.front().name = "a";
  description.servers.front().device = "a";
  for (const char* name : {"b", "b by its links"}) {
    DeviceKind& kind = description.devices.emplace_back(description.devices.front());
    kind.name = name;
    kind.time_scale = {{"a", {kOne.billionths / 2}}};
    ServerGroup& servers = description.servers.emplace_back(description.servers.front());
    servers.name = std::string("servers") + (kind.name == "b" ? "b" : "c") + "x";
    servers.device = name;
  }
  description.servers[1].links.port.bandwidth = bytes_per_ns(2);
  const auto inputs =
      std::get<PlanInputs>(group_inputs(divided_layer("a"), Topology(description), {.tensor = 2}));
  const Topology grouped(inputs.topology);
  const CostModel costs(inputs.profile, grouped);
  CHECK(costs.table(1, 0).forward({0, 1}).ns == 100 + 1'000);
  CHECK(costs.table(1, 1).forward({0, 1}).ns == 50 + 500);
  CHECK(costs.table(1, 2).forward({0, 1}).ns == 50 + 1'000);
}

TEST_CASE("PCIe roots and uplinks are divided, stated ones and oversubscribed ones") {
  TopologyDescription description = cluster({.servers = 4, .devices = 4, .nics = {nic(8), nic(8)}});
  description.servers[0].pcie_roots = {
      {.source = "", .link = {bytes_per_ns(10), {2}}, .devices = {0, 1}, .nics = {0}},
      {.source = "", .link = {bytes_per_ns(10), {2}}, .devices = {2, 3}, .nics = {1}}};
  UplinkGroup racks;
  racks.count = 2;
  racks.members = 2;
  racks.bandwidth = bytes_per_ns(6);
  description.racks = {racks};
  const Topology topology(description);
  const auto result = group_devices(topology, {.tensor = 2});
  const TopologyDescription& grouped = grouped_of(result).description;
  CHECK(grouped.servers[0].pcie_roots[0].link.bandwidth == bytes_per_ns(5));
  CHECK(grouped.servers[0].pcie_roots[1].devices == std::vector<std::int32_t>{1});
  CHECK(grouped.servers[0].pcie_roots[1].nics == std::vector<std::int32_t>{1});
  CHECK(grouped.racks[0].bandwidth == bytes_per_ns(3));
  CHECK(Topology(grouped).device_count() == 8);
  CHECK(
      reason_of(group_devices(topology, {.tensor = 4})) ==
      "/servers/0/pcie_roots: the devices of a group of 4 in node are below different PCIe roots");
  description.racks[0].bandwidth.reset();
  description.racks[0].oversubscription = {2 * kOne.billionths};
  const auto by_nics = group_devices(Topology(description), {.tensor = 2});
  const Topology over(grouped_of(by_nics).description);
  // Two servers of two NICs of 8, oversubscribed twofold, of which each device has half.
  CHECK(over.way_between({0}, {2}).bandwidth == bytes_per_ns(8));
  // Unequal NICs of one group count whole, although the group follows the narrower one.
  description.servers[0].nics[1].link = nic(2);
  description.servers[0].nics[0].devices = {0, 2};
  description.servers[0].nics[1].devices = {1, 3};
  description.servers[0].pcie_roots.clear();
  const auto unequal = group_devices(Topology(description), {.tensor = 4});
  CHECK(Topology(grouped_of(unequal).description).way_between({0}, {2}).bandwidth ==
        Bandwidth{2'500'000'000});
}

TEST_CASE("context ranks are tensor groups apart, and the copies of parameters are beside them") {
  const Topology topology(cluster({.servers = 2, .devices = 8, .inside = {bytes_per_ns(3), {11}}}));
  const auto result = group_devices(topology, {.tensor = 2, .context = 2});
  const GroupShape& shape = only_shape(grouped_of(result));
  CHECK(grouped_of(result).description.group_size == 4);
  CHECK(shape.ring(CollectiveMembers::Tensor).members == 2);
  CHECK(shape.ring(CollectiveMembers::Context).members == 2);
  CHECK(shape.ring(CollectiveMembers::Experts).members == 1);
  CHECK(shape.copies.members == 2);
  CHECK(shape.copies.bandwidth == bytes_per_ns(3));
  CHECK(shape.expert_copies.members == 2);
  CHECK(shape.replicas == 1);
}

TEST_CASE("expert groups use the devices of several data-parallel ranks") {
  const Topology topology(cluster({.servers = 1, .devices = 8}));
  // Two tensor ranks, but whole experts, of which each of the eight devices has different ones.
  const auto result = group_devices(topology, {.tensor = 2, .experts = 8, .expert_tensor = 1});
  const GroupShape& shape = only_shape(grouped_of(result));
  CHECK(shape.replicas == 4);
  CHECK(shape.copies.members == 4);
  CHECK(shape.expert_copies.members == 1);
  CHECK(shape.ring(CollectiveMembers::Experts).members == 8);
  CHECK(shape.ring(CollectiveMembers::Experts).members_in_server == 8);
}

TEST_CASE("groups of whole servers share NICs among the rings that pass them") {
  ClusterFigures figures{.servers = 4, .devices = 4, .inside = {bytes_per_ns(100), {1}}};
  figures.nics = {nic(8, 3), nic(8, 3)};
  const Topology topology(cluster(figures));
  const auto result = group_devices(topology, {.tensor = 2, .full_shards = 4});
  const GroupedTopology& grouped = grouped_of(result);
  const Topology made(grouped.description);
  REQUIRE(made.device_count() == 2);
  CHECK(made.device({1}).name == "node[2-3]:0-3");
  CHECK(made.nic_link({0}, 0).bandwidth == bytes_per_ns(4));
  const GroupRing& copies = only_shape(grouped).copies;
  CHECK(copies.members == 4);
  CHECK(copies.members_in_server == 2);
  // Two rings pass both NICs of 8 bytes a nanosecond; four devices send at once.
  CHECK(copies.bandwidth == bytes_per_ns(8));
  CHECK(copies.between_servers == bytes_per_ns(4));
  CHECK(copies.latency == Duration{6});
  // Each of the four devices has 200 of its 800 bytes for each other one: 200 within its server,
  // 400 between servers.
  CHECK(collective_time(CollectiveKind::AllToAll, {800}, copies) == Duration{100 + 6});
  CHECK(only_shape(grouped).replicas == 4);
}

TEST_CASE("devices of a group that shard the optimizer's state scatter and gather in it") {
  ModelProfile model = model_of({{.forward = 10, .backward = 20, .parameters = 8'000}});
  model.optimizer.gradient_bytes_per_parameter_byte = {2 * kOne.billionths};
  model.optimizer.state_bytes_per_parameter_byte = {6 * kOne.billionths};
  model.optimizer.step_ns_per_parameter_byte = kOne;
  ClusterFigures figures{.servers = 2, .devices = 4, .inside = {bytes_per_ns(100), {1}}};
  figures.nics = {nic(8, 3)};
  const Parallelism form{.shards_optimizer = true, .optimizer_shards = 4};
  const auto result = group_inputs(model, Topology(cluster(figures)), form);
  const auto& inputs = std::get<PlanInputs>(result);
  CHECK_FALSE(inputs.topology.shards_optimizer);
  CHECK(inputs.profile.group.shards_optimizer);
  CHECK_FALSE(inputs.profile.group.shards_all_state);
  const CostedPlan costed(inputs.profile, inputs.topology,
                          {.micro_batch_size = 8,
                           .num_micro_batches = 1,
                           .depths = {1},
                           .stages = {{.layers = 1, .devices = {0, 1}}}});
  const StageCost& stage = costed.costs.stages.front();
  const MemoryCost& memory = stage.replicas.front().memory;
  CHECK(memory.weights == Bytes{8'000});
  CHECK(memory.gradients == Bytes{16'000});
  CHECK(memory.optimizer_state == Bytes{6 * 2'000});
  // Each of four devices all-reduces a quarter of the gradients with the other server, on a quarter
  // of the NIC: 4,000 bytes at 2 bytes/ns, and twice the latency of two NICs and no switch.
  REQUIRE(stage.buckets.size() == 1);
  CHECK(stage.buckets.front().size == Bytes{4'000});
  CHECK(stage.buckets.front().time == Duration{2'000 + 2 * 6});
  // Three quarters of the gradients are scattered, and of the parameters gathered, in three rounds
  // at 100 bytes/ns each; the step is of a quarter.
  CHECK(stage.optimizer_step == Duration{120 + 3 + 60 + 3 + 2'000});
}

TEST_CASE("stages shard the optimizer's state over replicas, or all of them in their groups") {
  const ModelProfile model = model_of({{.forward = 10, .backward = 20, .parameters = 8'000}});
  const Topology topology(cluster({.servers = 1, .devices = 4}));
  const Parallelism over_replicas{.group_replicas = 2, .shards_optimizer = true};
  const Parallelism in_groups{.shards_optimizer = true, .optimizer_shards = 2};
  const auto result = group_inputs(model, topology, over_replicas, {in_groups});
  const auto* none = std::get_if<NoGroups>(&result);
  REQUIRE(none != nullptr);
  CHECK(none->place == "/stage_forms/0");
  CHECK(none->reason ==
        "tensor 1, optimizer state sharded over 2: the optimizer's state is sharded over the "
        "replicas of all stages or of none");
  const auto whole = group_inputs(model, topology, {.group_replicas = 2}, {in_groups});
  CHECK(std::holds_alternative<NoGroups>(whole));
}

TEST_CASE("tensor-parallel ranks on several servers reduce by a ring through their NICs") {
  ClusterFigures figures{.servers = 4, .devices = 4, .inside = {bytes_per_ns(100), {1}}};
  figures.nics = {nic(8, 3), nic(8, 3)};
  const Topology topology(cluster(figures));
  const auto result = group_devices(topology, {.tensor = 8});
  const GroupedTopology& grouped = grouped_of(result);
  const Topology made(grouped.description);
  REQUIRE(made.device_count() == 2);
  // One ring passes both NICs of each server.
  const GroupRing& tensor = only_shape(grouped).ring(CollectiveMembers::Tensor);
  CHECK(tensor.members == 8);
  CHECK(tensor.members_in_server == 4);
  CHECK(tensor.bandwidth == bytes_per_ns(16));
  // 14 rounds of 1,000 of 8,000 bytes.
  CHECK(collective_time(CollectiveKind::AllReduce, {8'000}, tensor) == Duration{875 + 14 * 6});
  CHECK(only_shape(grouped).copies.members == 1);
  CHECK(reason_of(group_devices(topology, {.tensor = 6})) ==
        "/servers/0/devices: groups of 6 devices need a part of a server or whole ones, and node "
        "has 4");
}

TEST_CASE("groups of servers need as many of them everywhere") {
  CHECK(reason_of(
            group_devices(Topology(cluster({.servers = 3, .devices = 2})), {.full_shards = 4})) ==
        "/servers/0/count: groups of 2 servers need a multiple of that, and there are 3 node");
  CHECK(reason_of(
            group_devices(Topology(cluster({.servers = 2, .devices = 4})), {.full_shards = 6})) ==
        "/servers/0/devices: groups of 6 devices need a part of a server or whole ones, and node "
        "has 4");
  TopologyDescription description = cluster({.servers = 6, .devices = 2});
  UplinkGroup racks;
  racks.count = 2;
  racks.members = 3;
  racks.bandwidth = bytes_per_ns(6);
  description.racks = {racks};
  CHECK(
      reason_of(group_devices(Topology(description), {.full_shards = 4})) ==
      "/racks/0/servers: groups of 2 servers need a multiple of that in each rack, and one has 3");
}

TEST_CASE("groups are refused where a layer has no variant") {
  ModelProfile profile = model_of({{.forward = 1}});
  const auto none = group_inputs(profile, Topology(cluster({.servers = 1, .devices = 2})),
                                 Parallelism{.tensor = 2});
  REQUIRE(std::holds_alternative<NoGroups>(none));
  CHECK(std::get<NoGroups>(none).reason == "layer layer0 has no variant for tensor 2");
}

}  // namespace
}  // namespace dapple
