#include "dapple/search/placement/spread_reductions.h"

#include <algorithm>
#include <set>
#include <utility>

namespace dapple::search {
namespace {

bool are_servers_alike(const Topology& topology) {
  const std::vector<ServerGroup>& groups = topology.description().servers;
  if (groups.size() != 1 || groups.front().links.kind != ServerLinks::Kind::Switch) return false;
  return std::all_of(groups.front().nics.begin(), groups.front().nics.end(),
                     [&](const Nic& nic) { return nic.link == groups.front().nics.front().link; });
}

Topology with_open_ways(const Topology& topology) {
  TopologyDescription description = topology.description();
  description.racks.clear();
  description.pods.clear();
  for (ServerGroup& group : description.servers) group.pcie_roots.clear();
  return Topology(std::move(description));
}

/// Returns the topology without measured bus bandwidths, so that the figures of links count
/// instead.
Topology without_measurements(const Topology& topology) {
  TopologyDescription description = topology.description();
  for (ServerGroup& group : description.servers) group.bus_bandwidth.clear();
  return Topology(std::move(description));
}

/// Returns the first devices.
std::vector<DeviceIndex> first_devices(std::int32_t count) {
  std::vector<DeviceIndex> devices;
  for (std::int32_t d = 0; d < count; ++d) devices.push_back({d});
  return devices;
}

/// Returns `each` devices in each of the first `servers` servers, on as many NICs as possible.
/// Requires: the servers are alike.
std::vector<DeviceIndex> spread_over(std::int32_t servers, std::int32_t each,
                                     const Topology& topology) {
  const Server& server = topology.server({0});
  std::vector<std::int32_t> numbers;
  std::set<std::int32_t> nics;
  for (const bool want_new_nic : {true, false}) {
    for (std::int32_t number = 0; number < server.device_count; ++number) {
      if (static_cast<std::int32_t>(numbers.size()) == each) break;
      const bool is_new = nics.insert(topology.nic_of({number})).second;
      const bool is_taken = std::find(numbers.begin(), numbers.end(), number) != numbers.end();
      if (!is_taken && is_new == want_new_nic) numbers.push_back(number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  std::vector<DeviceIndex> devices;
  for (std::int32_t s = 0; s < servers; ++s) {
    for (const std::int32_t number : numbers) {
      devices.push_back({topology.server({s}).first_device.value + number});
    }
  }
  return devices;
}

}  // namespace

SpreadReductions::SpreadReductions(const Topology& topology) {
  ways_.push_back(with_open_ways(topology));
  is_alike_ = are_servers_alike(open_topology());
  if (is_alike_ && !open_topology().group_of({0}).bus_bandwidth.empty()) {
    ways_.push_back(without_measurements(open_topology()));
  }
}

const std::vector<SpreadReductions::Reduction>& SpreadReductions::over(std::int32_t devices) const {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = known_.try_emplace(devices);
  if (is_new) entry->second = make(devices);
  return entry->second;
}

std::vector<SpreadReductions::Reduction> SpreadReductions::make(std::int32_t devices) const {
  std::vector<Reduction> reductions;
  for (const Topology& way : ways_) add(devices, way, reductions);
  for (Reduction& reduction : reductions) reduction.model.forget_ports();
  return reductions;
}

void SpreadReductions::add(std::int32_t devices, const Topology& way,
                           std::vector<Reduction>& reductions) const {
  const std::int32_t per_server = way.server({0}).device_count;
  const bool fills_servers = devices % per_server == 0;
  const std::int32_t of_first = devices <= per_server ? devices : fills_servers ? per_server : 0;
  const std::vector<DeviceIndex> first = first_devices(devices);
  reductions.push_back({of_first, AllReduceModel(first, way)});
  // Different numbers of devices on several servers, which leaves a flat ring only.
  const std::int32_t others = way.server_count() - 1;
  if (devices > 1 && others > 0 && devices <= others * per_server) {
    std::vector<DeviceIndex> apart(first.begin(), first.end() - 1);
    apart.push_back({way.device_count() - 1});
    reductions.push_back({devices == 2 ? 1 : 0, AllReduceModel(apart, way)});
  }
  for (std::int32_t servers = 2; servers <= std::min(devices, way.server_count()); ++servers) {
    const std::int32_t each = devices / servers;
    if (devices % servers != 0 || each > per_server) continue;
    reductions.push_back({each, AllReduceModel(spread_over(servers, each, way), way)});
  }
}

}  // namespace dapple::search
