#include "dapple/cost/device_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/profile/variants.h"

namespace dapple {
namespace {

std::size_t to_position(std::int32_t number) {
  return static_cast<std::size_t>(number);
}

/// A part of a bandwidth; none is less than a byte per second.
Bandwidth part_of(Bandwidth whole, std::int64_t parts) {
  return {std::max<std::int64_t>(1, whole.bytes_per_second / parts)};
}

/// The NICs of one group, each with the number of the group's devices that use it.
using GroupNics = std::map<std::int32_t, std::int64_t>;

/// Forms the groups of one kind of server.
class ServerGrouping {
 public:
  ServerGrouping(const Topology& topology, std::size_t group, std::int64_t size)
      : topology_(topology),
        servers_(topology.description().servers[group]),
        first_server_(first_server_of(topology, group)),
        size_(size),
        place_(fmt::format("/servers/{}", group)) {}

  std::variant<ServerGroup, NoGroups> run();
  GroupRing ring() const;

 private:
  static ServerIndex first_server_of(const Topology& topology, std::size_t group) {
    for (std::int32_t s = 0; s < topology.server_count(); ++s) {
      if (to_position(topology.server(ServerIndex{s}).group) == group) return ServerIndex{s};
    }
    throw Bug("a kind of server has no server");
  }
  std::optional<NoGroups> fault() const;
  NoGroups refuse(const char* key, std::string reason) const {
    return {place_ + key, std::move(reason)};
  }
  std::int32_t groups() const { return servers_.devices / static_cast<std::int32_t>(size_); }
  std::vector<GroupNics> nics_of_groups() const;
  std::optional<NoGroups> group_nics(ServerGroup& grouped);
  Nic merged(const GroupNics& nics) const;
  std::optional<NoGroups> group_roots(ServerGroup& grouped) const;

  const Topology& topology_;
  const ServerGroup& servers_;
  ServerIndex first_server_;
  std::int64_t size_;
  std::string place_;
  // By NIC: its position among those of the grouped server, -1 if no device uses it.
  std::vector<std::int32_t> new_nics_;
};

std::optional<NoGroups> ServerGrouping::fault() const {
  if (servers_.devices % size_ != 0) {
    return refuse("/devices", fmt::format("groups of {} devices need a multiple of that in each "
                                          "server, and {} has {}",
                                          size_, servers_.name, servers_.devices));
  }
  if (servers_.links.kind == ServerLinks::Kind::Matrix) {
    return refuse("/links", fmt::format("groups of devices need a switch within the server, and {} "
                                        "has a link matrix",
                                        servers_.name));
  }
  return std::nullopt;
}

GroupRing ServerGrouping::ring() const {
  GroupRing ring{.members = size_,
                 .bandwidth = servers_.links.port.bandwidth,
                 .latency = servers_.links.port.latency};
  for (const BusBandwidthTable& table : servers_.bus_bandwidth) {
    if (table.servers != 1 || table.devices != size_) continue;
    for (const BusBandwidthTable::Point& point : table.points) {
      ring.measured.push_back({point.size, reduction_time(table, point)});
    }
  }
  return ring;
}

std::vector<GroupNics> ServerGrouping::nics_of_groups() const {
  std::vector<GroupNics> nics(static_cast<std::size_t>(groups()));
  const std::int32_t first = topology_.server(first_server_).first_device.value;
  for (std::int32_t number = 0; number < servers_.devices; ++number) {
    ++nics[static_cast<std::size_t>(number / size_)][topology_.nic_of(DeviceIndex{first + number})];
  }
  return nics;
}

/// Returns the NICs of one group as one, of which each device has an equal part.
Nic ServerGrouping::merged(const GroupNics& nics) const {
  Nic whole;
  whole.link.bandwidth = {kMaxCount};
  for (const auto& [nic, users] : nics) {
    const Link link = topology_.nic_link(first_server_, nic);
    whole.link.bandwidth = std::min(whole.link.bandwidth, part_of(link.bandwidth, users));
    whole.link.latency = std::max(whole.link.latency, servers_.nics[to_position(nic)].link.latency);
  }
  return whole;
}

/// Sets the NICs of the grouped server.
std::optional<NoGroups> ServerGrouping::group_nics(ServerGroup& grouped) {
  grouped.nics.clear();
  new_nics_.assign(servers_.nics.size(), -1);
  if (servers_.nics.empty()) return std::nullopt;
  const std::vector<GroupNics> of_groups = nics_of_groups();
  for (std::size_t g = 0; g < of_groups.size(); ++g) {
    std::int32_t position = new_nics_[to_position(of_groups[g].begin()->first)];
    for (const auto& [nic, users] : of_groups[g]) {
      const bool is_taken = new_nics_[to_position(nic)] >= 0;
      if (is_taken && of_groups[g].size() > 1) {
        return refuse("/nics", fmt::format("a group of {} devices in {} has several NICs, of which "
                                           "another group uses one",
                                           size_, servers_.name));
      }
    }
    if (position < 0) {
      position = static_cast<std::int32_t>(grouped.nics.size());
      grouped.nics.push_back(merged(of_groups[g]));
    }
    for (const auto& [nic, users] : of_groups[g]) new_nics_[to_position(nic)] = position;
    grouped.nics[to_position(position)].devices.push_back(static_cast<std::int32_t>(g));
  }
  return std::nullopt;
}

/// Sets the PCIe roots of the grouped server.
std::optional<NoGroups> ServerGrouping::group_roots(ServerGroup& grouped) const {
  for (PcieRoot& root : grouped.pcie_roots) {
    root.link.bandwidth = part_of(root.link.bandwidth, size_);
    std::map<std::int32_t, std::int64_t> members;
    for (const std::int32_t device : root.devices) {
      ++members[static_cast<std::int32_t>(device / size_)];
    }
    root.devices.clear();
    for (const auto& [group, count] : members) {
      if (count != size_) {
        return refuse("/pcie_roots", fmt::format("the devices of a group of {} in {} are below "
                                                 "different PCIe roots",
                                                 size_, servers_.name));
      }
      root.devices.push_back(group);
    }
    std::set<std::int32_t> nics;
    for (const std::int32_t nic : root.nics) {
      if (new_nics_[to_position(nic)] >= 0) nics.insert(new_nics_[to_position(nic)]);
    }
    root.nics.assign(nics.begin(), nics.end());
  }
  std::set<std::int32_t> seen;
  for (const PcieRoot& root : grouped.pcie_roots) {
    for (const std::int32_t nic : root.nics) {
      if (seen.insert(nic).second) continue;
      return refuse("/pcie_roots",
                    fmt::format("the NICs of a group of {} in {} are below different "
                                "PCIe roots",
                                size_, servers_.name));
    }
  }
  return std::nullopt;
}

std::variant<ServerGroup, NoGroups> ServerGrouping::run() {
  if (auto none = fault()) return *std::move(none);
  ServerGroup grouped = servers_;
  grouped.devices = groups();
  grouped.bus_bandwidth.clear();
  if (auto none = group_nics(grouped)) return *std::move(none);
  if (auto none = group_roots(grouped)) return *std::move(none);
  return grouped;
}

/// Returns the uplinks with the part of their bandwidth that each device of a group has, where
/// `bandwidth_of` is the bandwidth of the uplink of a number.
template <class BandwidthOf>
std::vector<UplinkGroup> divided_uplinks(const std::vector<UplinkGroup>& groups, std::int64_t size,
                                         BandwidthOf bandwidth_of) {
  std::vector<UplinkGroup> divided;
  std::int32_t first = 0;
  for (const UplinkGroup& group : groups) {
    // Uplinks of which only the oversubscription is stated may differ, as their members may.
    const std::int32_t alike = group.bandwidth ? group.count : 1;
    for (std::int32_t i = 0; i < group.count; i += alike) {
      UplinkGroup& part = divided.emplace_back(group);
      part.count = alike;
      part.bandwidth = part_of(bandwidth_of(first + i), size);
    }
    first += group.count;
  }
  return divided;
}

}  // namespace

std::variant<GroupedTopology, NoGroups> group_devices(const Topology& topology, std::int64_t size) {
  GroupedTopology grouped{.description = topology.description(), .ring = {}};
  grouped.description.group_size = size;
  for (std::size_t g = 0; g < grouped.description.servers.size(); ++g) {
    ServerGrouping grouping(topology, g, size);
    auto servers = grouping.run();
    if (auto* none = std::get_if<NoGroups>(&servers)) return std::move(*none);
    grouped.description.servers[g] = std::get<ServerGroup>(std::move(servers));
    if (g == 0) {
      grouped.ring = grouping.ring();
    } else if (grouping.ring() != grouped.ring) {
      return NoGroups{
          fmt::format("/servers/{}/links", g),
          fmt::format("groups of devices need the same links within every server, and "
                      "those of {} are not those of {}",
                      grouped.description.servers[g].name, grouped.description.servers[0].name)};
    }
  }
  const TopologyDescription& whole = topology.description();
  grouped.description.racks = divided_uplinks(
      whole.racks, size, [&](std::int32_t rack) { return topology.rack_bandwidth(rack); });
  grouped.description.pods = divided_uplinks(
      whole.pods, size, [&](std::int32_t pod) { return topology.pod_bandwidth(pod); });
  return grouped;
}

std::variant<PlanInputs, NoGroups> group_inputs(const ModelProfile& profile,
                                                const Topology& topology,
                                                const Parallelism& parallelism) {
  if (parallelism.is_none()) return PlanInputs{profile, topology.description()};
  const std::string missing = layer_without(profile, parallelism);
  if (!missing.empty()) {
    return NoGroups{"/layers",
                    fmt::format("layer {} has no variant for {}", missing, to_text(parallelism))};
  }
  GroupedTopology found{.description = topology.description(), .ring = {}};
  if (parallelism.group_size() > 1) {
    auto grouped = group_devices(topology, parallelism.group_size());
    if (auto* none = std::get_if<NoGroups>(&grouped)) return std::move(*none);
    found = std::get<GroupedTopology>(std::move(grouped));
  }
  found.description.shards_optimizer = parallelism.shards_optimizer;
  return PlanInputs{with_parallelism(profile, parallelism, found.ring),
                    std::move(found.description)};
}

}  // namespace dapple
