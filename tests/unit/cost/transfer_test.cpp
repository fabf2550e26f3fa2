// Transfers worked by hand; links of one byte per nanosecond.

#include <catch2/catch.hpp>

#include "../../support/plans.h"

namespace dapple {
namespace {

using namespace small;

std::vector<TransferEnd> shares(std::int64_t samples, const std::vector<std::int32_t>& devices) {
  std::vector<TransferEnd> ends;
  const auto replicas = static_cast<std::int64_t>(devices.size());
  for (std::int64_t i = 0; i < replicas; ++i) {
    ends.push_back({{devices[static_cast<std::size_t>(i)]}, replica_share(samples, replicas, i)});
  }
  return ends;
}

Bytes ten_a_sample(std::int64_t samples) {
  return {10 * samples};
}

std::string flows_of(const TransferCost& cost) {
  std::string text;
  for (const PairFlow& flow : cost.flows) {
    if (!text.empty()) text += ' ';
    text += std::to_string(flow.from.value) + ">" + std::to_string(flow.to.value) + ":" +
            std::to_string(flow.size.count);
  }
  return text;
}

std::string samples_of(const TransferCost& cost) {
  std::string text;
  for (const PairFlow& flow : cost.flows) {
    if (!text.empty()) text += ' ';
    text += std::to_string(flow.samples.begin) + "-" + std::to_string(flow.samples.end);
  }
  return text;
}

std::string ports_of(const TransferCost& cost, const Topology& topology) {
  std::string text;
  for (const PortLoad& load : cost.ports) {
    if (!text.empty()) text += ", ";
    text += topology.ports()[load.port.position()].name + " " + std::to_string(load.size.count);
  }
  return text;
}

TEST_CASE("three senders to two receivers send what their samples have in common") {
  // 7 samples: 3 + 2 + 2 to 4 + 3. Sample 3 of the middle sender goes to the first receiver.
  const Topology topology(cluster({.servers = 1, .devices = 5}));
  const TransferCost cost =
      transfer_cost(shares(7, {0, 1, 2}), shares(7, {3, 4}), ten_a_sample, topology);
  CHECK(flows_of(cost) == "0>3:30 1>3:10 1>4:10 2>4:20");
  CHECK(samples_of(cost) == "0-3 3-4 4-5 5-7");
  CHECK(ports_of(cost, topology) ==
        "node0:0 out 30, node0:1 out 20, node0:2 out 20, node0:3 in 40, node0:4 in 30");
  CHECK(cost.size.count == 70);
  CHECK(cost.time.ns == 40);  // the first receiver's port
  const TransferCost back =
      transfer_cost(shares(7, {3, 4}), shares(7, {0, 1, 2}), ten_a_sample, topology);
  CHECK(flows_of(back) == "3>0:30 3>1:10 4>1:10 4>2:20");
  CHECK(back.time.ns == 40);
}

TEST_CASE("one sender to three receivers is held by the sender's port") {
  const Topology topology(cluster({.servers = 1, .devices = 4}));
  const TransferCost cost =
      transfer_cost(shares(5, {0}), shares(5, {1, 2, 3}), ten_a_sample, topology);
  // 5 samples are 2 + 2 + 1.
  CHECK(flows_of(cost) == "0>1:20 0>2:20 0>3:10");
  CHECK(cost.time.ns == 50);
}

TEST_CASE("what stays on a device costs nothing") {
  // 4 samples from devices 0, 1 to 1, 2: device 1 holds samples 2 and 3 and wants 0 and 1.
  const Topology topology(cluster({.servers = 1, .devices = 3}));
  const TransferCost all =
      transfer_cost(shares(4, {0, 1}), shares(4, {0, 1}), ten_a_sample, topology);
  CHECK(all.flows.empty());
  CHECK(all.ports.empty());
  CHECK(all.time.ns == 0);
  // 2 + 1 to 1 + 2 on the same devices: sample 1 alone moves, from device 0 to 1.
  const TransferCost some = transfer_cost({{{0}, {0, 2}}, {{1}, {2, 3}}},
                                          {{{0}, {0, 1}}, {{1}, {1, 3}}}, ten_a_sample, topology);
  CHECK(flows_of(some) == "0>1:10");
  CHECK(some.size.count == 10);
}

TEST_CASE("pairs across servers share the NICs of both sides") {
  // Two pairs of 20 bytes over one NIC each side; 2 + 2 ns of latency, after the bytes.
  const Topology topology(
      cluster({.servers = 2, .devices = 2, .nics = {Link{bytes_per_ns(1), {2}}}}));
  const TransferCost cost =
      transfer_cost(shares(4, {0, 1}), shares(4, {2, 3}), ten_a_sample, topology);
  CHECK(flows_of(cost) == "0>2:20 1>3:20");
  CHECK(ports_of(cost, topology) == "node0 nic0 out 40, node1 nic0 in 40");
  CHECK(cost.time.ns == 44);
  for (const PortLoad& load : cost.ports) {
    CHECK(load.busy.count == 40 * 1024);
    CHECK(load.latency.ns == 4);
  }
}

TEST_CASE("a port has the largest latency of the paths through it") {
  // Over its one NIC of 2 bytes per ns device 0 reaches one server at 1 + 1 ns and one at 1 + 9.
  ServerGroup near;
  near.name = "near";
  near.device = "gpu";
  near.count = 2;
  near.nics = {{.source = "", .link = {bytes_per_ns(2), {1}}, .devices = {}}};
  ServerGroup far = near;
  far.name = "far";
  far.count = 1;
  far.nics[0].link.latency = {9};
  const Topology topology(description_of({near, far}));
  const TransferCost cost =
      transfer_cost(shares(2, {0}), shares(2, {1, 2}), ten_a_sample, topology);
  REQUIRE(cost.ports.size() == 3);
  CHECK(cost.ports[0].latency.ns == 10);  // out of near0: 20 bytes in 10 ns
  CHECK(cost.ports[1].latency.ns == 2);   // into near1: 10 bytes in 5 ns
  CHECK(cost.ports[2].latency.ns == 10);  // into far0
  CHECK(cost.time.ns == 20);
}

TEST_CASE("nothing is sent for no bytes, not even a latency") {
  const Topology topology(cluster({.servers = 2, .devices = 1, .nics = {Link{{1}, {1000}}}}));
  const auto nothing = [](std::int64_t) { return Bytes{}; };
  const TransferCost cost = transfer_cost(shares(3, {0}), shares(3, {1}), nothing, topology);
  CHECK(cost.flows.empty());
  CHECK(cost.time.ns == 0);
  CHECK(cost.size.count == 0);
}

TEST_CASE("the size of each pair's samples is rounded up on its own") {
  // 5 bytes for two samples: one sample is 3 bytes, so two pairs of one send 6.
  const Topology topology(cluster({.servers = 1, .devices = 4}));
  const auto size_of = [](std::int64_t samples) { return Bytes{divide_up(5 * samples, 2)}; };
  const TransferCost cost = transfer_cost(shares(2, {0, 1}), shares(2, {2, 3}), size_of, topology);
  CHECK(flows_of(cost) == "0>2:3 1>3:3");
  CHECK(cost.size.count == 6);
}

TEST_CASE("an idle link takes bytes over bandwidth, rounded up, and then its latency") {
  // 10 bytes at 3 per ns: 3.33.
  CHECK(transfer_time({10}, {bytes_per_ns(3), {5}}).ns == 9);
  CHECK(transfer_time({9}, {bytes_per_ns(3), {5}}).ns == 8);
  CHECK(transfer_time({0}, {bytes_per_ns(3), {5}}).ns == 0);
}

TEST_CASE("dealt stages send along the pairs of the micro-batch's number") {
  // Two replicas to three: micro-batch m goes from m mod 2 to m mod 3, six pairs in turn.
  const CostedPlan pipeline(
      model_of({{.forward = 1, .backward = 1, .output = 10}, {.forward = 1, .backward = 1}}),
      cluster({.servers = 1, .devices = 5}),
      PlanShape{.micro_batch_size = 2,
                .num_micro_batches = 7,
                .depths = {2, 1},
                .stages = {{.layers = 1, .devices = {0, 1}, .dealt = true},
                           {.layers = 1, .devices = {2, 3, 4}, .dealt = true}}});
  const BoundaryCost& boundary = pipeline.costs.boundaries.front();
  REQUIRE(boundary.forward.size() == 6);
  REQUIRE(boundary.backward.size() == 6);
  const std::string expected[] = {"0>2:20", "1>3:20", "0>4:20", "1>2:20", "0>3:20", "1>4:20"};
  for (std::size_t m = 0; m < 6; ++m) CHECK(flows_of(boundary.forward[m]) == expected[m]);
  CHECK(flows_of(boundary.backward[4]) == "3>0:20");
}

/// The same, where each replica has so many devices.
std::vector<TransferEnd> shares_of_groups(std::int64_t samples,
                                          const std::vector<std::int32_t>& devices,
                                          std::int32_t members) {
  std::vector<TransferEnd> ends;
  for (std::int32_t i = 0; i < std::ssize(devices); ++i) {
    ends.push_back({.device = {devices[static_cast<std::size_t>(i)]},
                    .samples = replica_share(samples, std::ssize(devices) / members, i / members),
                    .member = i % members,
                    .members = members});
  }
  return ends;
}

TEST_CASE("a device serves equally many devices of a larger replica") {
  const Topology topology(cluster({.servers = 1, .devices = 8}));
  // Two of a replica to four of a replica, which each need all three samples.
  const TransferCost pair = transfer_cost(
      shares_of_groups(3, {2, 3}, 2), shares_of_groups(3, {4, 5, 6, 7}, 4), ten_a_sample, topology);
  CHECK(flows_of(pair) == "2>4:30 2>5:30 3>6:30 3>7:30");
  // Two replicas of one device: the first has two samples.
  const TransferCost single = transfer_cost(shares_of_groups(3, {2, 3}, 1),
                                            shares_of_groups(3, {4, 5}, 2), ten_a_sample, topology);
  CHECK(flows_of(single) == "2>4:20 2>5:20 3>4:10 3>5:10");
}

TEST_CASE("the devices of a larger replica send equal parts, rounded up") {
  const Topology topology(cluster({.servers = 1, .devices = 8}));
  const TransferCost pair = transfer_cost(shares_of_groups(3, {4, 5, 6, 7}, 4),
                                          shares_of_groups(3, {2, 3}, 2), ten_a_sample, topology);
  CHECK(flows_of(pair) == "4>2:15 5>2:15 6>3:15 7>3:15");
  const TransferCost single = transfer_cost(shares_of_groups(1, {4, 5, 6, 7}, 4),
                                            shares_of_groups(1, {3}, 1), ten_a_sample, topology);
  CHECK(flows_of(single) == "4>3:3 5>3:3 6>3:3 7>3:3");
  CHECK(single.size.count == 12);
}

TEST_CASE("ranks send their shares, and a tensor is there when its receiver has gathered it") {
  const Topology topology(cluster({.servers = 1, .devices = 4}));
  const TransferShares thirds{.shares = 3, .gather = [](DeviceIndex device, Bytes size) {
                                return Duration{1000 * device.value + size.count};
                              }};
  const TransferCost cost =
      transfer_cost(shares(7, {0, 1}), shares(7, {2, 3}), ten_a_sample, topology, thirds);
  // 4 + 3 samples: 40 and 30 bytes, in shares of ceil(40 / 3) and 10.
  CHECK(flows_of(cost) == "0>2:14 1>3:10");
  CHECK(cost.size.count == 24);
  CHECK(cost.flows[0].received.count == 40);
  CHECK(cost.flows[0].route.latency.ns == 2040);
  CHECK(cost.flows[1].route.latency.ns == 3030);
  CHECK(cost.time.ns == 3040);
  // Two senders of one receiver: it gathers all 70 bytes at once.
  const TransferCost joined =
      transfer_cost(shares(7, {0, 1}), shares(7, {2}), ten_a_sample, topology, thirds);
  CHECK(flows_of(joined) == "0>2:14 1>2:10");
  CHECK(joined.flows[0].route.latency.ns == 2070);
  CHECK(joined.time.ns == 24 + 2070);
  // What stays on a device is not gathered.
  const TransferCost staying =
      transfer_cost(shares(7, {0, 1}), shares(7, {0}), ten_a_sample, topology, thirds);
  CHECK(flows_of(staying) == "1>0:10");
  CHECK(staying.time.ns == 10 + 30);
}

}  // namespace
}  // namespace dapple
