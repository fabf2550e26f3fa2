// All-reduces against the formulas in their plain form, and what more bytes or devices do.

#include <catch2/catch.hpp>

#include <set>

#include "../support/measured_reductions.h"
#include "../support/random_pipeline.h"

namespace dapple {
namespace {

using namespace small;

/// Switched servers alike, random figures.
ClusterFigures random_figures(Dice& dice, const Ranges& ranges) {
  return {.servers = static_cast<std::int32_t>(dice.roll(1, 4)),
          .devices = static_cast<std::int32_t>(dice.roll(1, 4)),
          .inside = random_link(dice, ranges),
          .nics = {random_link(dice, ranges)}};
}

/// ceil(2 (members - 1) / members * bytes / bandwidth) in ticks.
std::int64_t ring_ticks(std::int64_t members, std::int64_t bytes, std::int64_t bandwidth) {
  const Wide numerator = Wide{2} * (members - 1) * bytes * 1'024'000'000'000;
  const Wide denominator = Wide{members} * bandwidth;
  return static_cast<std::int64_t>((numerator + denominator - 1) / denominator);
}

std::int64_t to_ns(std::int64_t ticks) {
  return (ticks + 1023) / 1024;
}

TEST_CASE("all devices of switched servers reduce in the faster of the two formulas") {
  Dice dice(41);
  for (int i = 0; i < scaled(2000); ++i) {
    const Ranges ranges = random_ranges(dice);
    const ClusterFigures figures = random_figures(dice, ranges);
    const std::int64_t devices = std::int64_t{figures.servers} * figures.devices;
    if (devices < 2) continue;
    const Topology topology(cluster(figures));
    std::vector<DeviceIndex> all;
    for (std::int32_t d = 0; d < devices; ++d) all.push_back({d});
    const std::int64_t bytes = dice.roll(1, ranges.bytes);
    const Link nic = figures.nics.front();
    const std::int64_t across_latency = 2 * nic.latency.ns;
    std::int64_t bandwidth = kMaxCount;
    std::int64_t hop = 0;
    if (figures.devices > 1) {
      bandwidth = std::min(bandwidth, figures.inside.bandwidth.bytes_per_second);
      hop = std::max(hop, figures.inside.latency.ns);
    }
    if (figures.servers > 1) {
      bandwidth = std::min(bandwidth, nic.bandwidth.bytes_per_second);
      hop = std::max(hop, across_latency);
    }
    std::int64_t expected = to_ns(ring_ticks(devices, bytes, bandwidth)) + 2 * (devices - 1) * hop;
    if (figures.servers > 1 && figures.devices > 1) {
      const std::int64_t ticks =
          ring_ticks(figures.devices, bytes, figures.inside.bandwidth.bytes_per_second) +
          ring_ticks(figures.servers, bytes, nic.bandwidth.bytes_per_second);
      expected =
          std::min(expected, to_ns(ticks) + 2 * (figures.devices - 1) * figures.inside.latency.ns +
                                 2 * (figures.servers - 1) * across_latency);
    }
    REQUIRE(AllReduceModel(all, topology).time({bytes}).ns == expected);
  }
}

TEST_CASE("more bytes never take less time, and no port carries more than its bandwidth") {
  Dice dice(42);
  int measured = 0;
  for (int i = 0; i < scaled(1000); ++i) {
    const Ranges ranges = random_ranges(dice);
    TopologyDescription description = random_cluster(dice, ranges);
    if (dice.chance(50)) measure_reductions(dice, 2 * ranges.bytes, description);
    const Topology topology(std::move(description));
    std::vector<DeviceIndex> members;
    for (std::int32_t d = 0; d < topology.device_count(); ++d) {
      if (dice.chance(60)) members.push_back({d});
    }
    const AllReduceModel model(members, topology);
    const std::int64_t bytes = dice.roll(0, ranges.bytes);
    measured += is_measured(model.cost({bytes})) ? 1 : 0;
    REQUIRE(model.time({bytes}) <= model.time({bytes + dice.roll(1, ranges.bytes)}));
    const AllReduceCost cost = model.cost({bytes});
    REQUIRE(cost.time == model.time({bytes}));
    REQUIRE(cost.time == round_up(cost.busy) + cost.latency);
    std::set<PortIndex> ports;
    for (const auto& [port, size] : cost.ports()) {
      REQUIRE(ports.insert(port).second);
      // Sizes are rounded up to a whole byte.
      const Bandwidth bandwidth = topology.ports()[port.position()].bandwidth;
      REQUIRE(occupation({size.count - 1}, bandwidth) <= cost.busy);
    }
  }
  CHECK(measured > scaled(30));
}

}  // namespace
}  // namespace dapple
