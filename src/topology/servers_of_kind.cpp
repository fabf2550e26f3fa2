#include "dapple/topology/servers_of_kind.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace dapple {
namespace {

/// Returns the racks or pods, each by itself, with those of their members that are kept, and
/// replaces `is_kept`, which says so of the members in order, by whether each of them is kept.
template <class BandwidthOf>
std::vector<UplinkGroup> kept_enclosures(const std::vector<UplinkGroup>& groups,
                                         std::vector<bool>& is_kept, BandwidthOf bandwidth_of) {
  std::vector<UplinkGroup> kept;
  std::vector<bool> are_kept;
  auto member = is_kept.begin();
  for (const UplinkGroup& group : groups) {
    for (std::int32_t i = 0; i < group.count; ++i) {
      const auto end = member + group.members;
      const auto left = static_cast<std::int32_t>(std::count(member, end, true));
      member = end;
      are_kept.push_back(left > 0);
      if (left == 0) continue;
      UplinkGroup& one = kept.emplace_back(group);
      one.count = 1;
      one.members = left;
      one.bandwidth = bandwidth_of(static_cast<std::int32_t>(are_kept.size()) - 1);
    }
  }
  is_kept = std::move(are_kept);
  return kept;
}

}  // namespace

std::vector<std::int32_t> kinds_in_use(const Topology& topology) {
  std::vector<std::int32_t> kinds;
  for (std::int32_t s = 0; s < topology.server_count(); ++s) {
    const std::int32_t kind = topology.device(topology.server(ServerIndex{s}).first_device).kind;
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

TopologyDescription servers_of_kind(const Topology& whole, std::int32_t kind) {
  TopologyDescription part = whole.description();
  const std::string name = part.devices[static_cast<std::size_t>(kind)].name;
  const auto is_other = [&](const auto& some) { return some.name != name; };
  std::erase_if(part.devices, is_other);
  std::erase_if(part.servers, [&](const ServerGroup& some) { return some.device != name; });
  std::vector<bool> is_kept;
  for (std::int32_t s = 0; s < whole.server_count(); ++s) {
    is_kept.push_back(whole.group_of(ServerIndex{s}).device == name);
  }
  part.racks = kept_enclosures(part.racks, is_kept,
                               [&](std::int32_t rack) { return whole.rack_bandwidth(rack); });
  part.pods = kept_enclosures(part.pods, is_kept,
                              [&](std::int32_t pod) { return whole.pod_bandwidth(pod); });
  return part;
}

}  // namespace dapple
