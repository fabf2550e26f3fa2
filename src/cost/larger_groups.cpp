#include "dapple/cost/larger_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/cost/device_groups.h"

namespace dapple {
namespace {

/// Returns the topology in groups of so many devices, or why there are none.
std::variant<Topology, NoGroups> topology_of_groups(const Topology& topology,
                                                    std::int64_t devices) {
  // How a group shares layers does not matter for its links.
  auto grouped = group_devices(topology, {.tensor = devices});
  if (auto* none = std::get_if<NoGroups>(&grouped)) return std::move(*none);
  return Topology(std::move(std::get<GroupedTopology>(grouped).description));
}

/// Requires: there are such groups.
Topology sound_topology_of_groups(const Topology& topology, std::int64_t devices) {
  auto groups = topology_of_groups(topology, devices);
  check(std::holds_alternative<Topology>(groups), "larger groups cannot be formed");
  return std::get<Topology>(std::move(groups));
}

}  // namespace

LargerGroups::LargerGroups(const Topology& topology, std::int32_t devices)
    : LargerGroups(devices, sound_topology_of_groups(topology, devices)) {
  check(add_ports(topology), "a group has other routes than its devices");
}

std::string LargerGroups::fault(const Topology& topology, std::int64_t devices) {
  for (std::int32_t s = 0; s < topology.server_count(); ++s) {
    if (topology.server({s}).device_count % devices == 0) continue;
    return fmt::format(
        "groups of another size have {} of its devices, which do not divide a server", devices);
  }
  if (topology.description().servers_of_group > 1) {
    return "groups of several servers are all of one size";
  }
  auto groups = topology_of_groups(topology, devices);
  if (const auto* none = std::get_if<NoGroups>(&groups)) return none->reason;
  LargerGroups larger(static_cast<std::int32_t>(devices), std::get<Topology>(std::move(groups)));
  if (larger.add_ports(topology)) return "";
  return "the devices of a larger group are reached over other ports";
}

/// Adds the ports of the route between two groups: those of the routes between their devices.
/// Returns whether these have the same ports, one for one.
bool LargerGroups::add_hop(const Topology& topology, DeviceIndex from, DeviceIndex to) {
  const Route whole = groups_.route(from, to);
  std::vector<std::map<PortIndex, std::int64_t>> parts(whole.ports.size());
  for (std::int32_t i = 0; i < devices_; ++i) {
    const Route one = topology.route({from.value * devices_ + i}, {to.value * devices_ + i});
    if (one.ports.size() != whole.ports.size()) return false;
    for (std::size_t p = 0; p < one.ports.size(); ++p) ++parts[p][one.ports[p]];
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    ports_.try_emplace(whole.ports[p], parts[p].begin(), parts[p].end());
  }
  return true;
}

/// Adds the ports of all routes. Those of uplinks are on the way to the first server, or to one
/// that is as far from it as any.
bool LargerGroups::add_ports(const Topology& topology) {
  const auto add_both = [&](DeviceIndex a, DeviceIndex b) {
    return a == b || (add_hop(topology, a, b) && add_hop(topology, b, a));
  };
  const auto first_of = [&](std::int32_t server) { return groups_.server({server}).first_device; };
  const std::int32_t servers = groups_.server_count();
  std::int32_t farthest = std::min(1, servers - 1);
  const auto uplinks_to = [&](std::int32_t server) {
    return groups_.way_between({0}, {server}).ports.size();
  };
  for (std::int32_t s = 2; s < servers; ++s) {
    if (uplinks_to(s) > uplinks_to(farthest)) farthest = s;
  }
  for (std::int32_t s = 0; s < servers; ++s) {
    for (std::int32_t i = 0; i < groups_.server({s}).device_count; ++i) {
      const DeviceIndex here{first_of(s).value + i};
      // The ports of the first group are those of its route to the second one.
      for (const std::int32_t other : {s, 0, farthest}) {
        if (!add_both(here, first_of(other))) return false;
      }
    }
  }
  return true;
}

AllReduceModel LargerGroups::reduction(const std::vector<DeviceIndex>& devices) const {
  std::vector<DeviceIndex> groups;
  for (std::size_t i = 0; i < devices.size(); i += static_cast<std::size_t>(devices_)) {
    groups.push_back({devices[i].value / devices_});
  }
  AllReduceModel model(groups, groups_);
  model.move_to(ports_);
  return model;
}

}  // namespace dapple
