#include "dapple/search/placement/placement.h"

#include <algorithm>
#include <numeric>

namespace dapple::search {
namespace {

std::int32_t free_devices(const std::vector<std::int32_t>& used, std::size_t server,
                          const Topology& topology) {
  return topology.server(index_at<ServerIndex>(server)).device_count - used[server];
}

/// The servers in the order in which a policy takes their devices.
std::vector<std::size_t> preferred_servers(PlacementPolicy policy,
                                           const std::vector<std::int32_t>& used) {
  std::vector<std::size_t> servers;
  const bool fresh_first = policy == PlacementPolicy::FreshFirst;
  for (const bool want_fresh : {fresh_first, !fresh_first}) {
    for (std::size_t server = used.size(); server-- > 0;) {
      if ((used[server] == 0) == want_fresh) servers.push_back(server);
    }
  }
  return servers;
}

std::vector<std::int32_t> fill(const std::vector<std::size_t>& servers,
                               const std::vector<std::int32_t>& used, std::int32_t replicas,
                               const Topology& topology) {
  std::vector<std::int32_t> taken(used.size(), 0);
  for (const std::size_t server : servers) {
    taken[server] = std::min(replicas, free_devices(used, server, topology));
    replicas -= taken[server];
  }
  return taken;
}

std::vector<std::int32_t> scatter(const std::vector<std::int32_t>& used, std::int32_t replicas,
                                  const Topology& topology) {
  std::vector<std::int32_t> taken(used.size(), 0);
  while (replicas > 0) {
    for (std::size_t server = used.size(); server-- > 0 && replicas > 0;) {
      if (taken[server] == free_devices(used, server, topology)) continue;
      ++taken[server];
      --replicas;
    }
  }
  return taken;
}

/// The next `taken` devices of a server: the last ones of its fill order that are free.
std::vector<DeviceIndex> next_devices(const std::vector<DeviceIndex>& fill_order, std::int32_t used,
                                      std::int32_t taken) {
  const auto end = fill_order.end() - used;
  return {end - taken, end};
}

}  // namespace

std::optional<std::vector<std::int32_t>> place(PlacementPolicy policy,
                                               const std::vector<std::int32_t>& used,
                                               std::int32_t replicas, const Topology& topology) {
  std::int32_t free = 0;
  for (std::size_t server = 0; server < used.size(); ++server) {
    free += free_devices(used, server, topology);
  }
  if (free < replicas) return std::nullopt;
  if (policy == PlacementPolicy::ScatterFirst) return scatter(used, replicas, topology);
  return fill(preferred_servers(policy, used), used, replicas, topology);
}

std::vector<DeviceIndex> take_devices(std::vector<std::int32_t>& used,
                                      const std::vector<std::int32_t>& taken,
                                      const Topology& topology) {
  std::vector<DeviceIndex> devices;
  for (std::size_t s = 0; s < used.size(); ++s) {
    const auto server = index_at<ServerIndex>(s);
    const auto next = next_devices(topology.fill_order(server), used[s], taken[s]);
    devices.insert(devices.end(), next.begin(), next.end());
    used[s] += taken[s];
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

bool have_same_kinds(const std::vector<DeviceIndex>& a, const std::vector<DeviceIndex>& b,
                     const Topology& topology) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](DeviceIndex x, DeviceIndex y) {
    return topology.device(x).kind == topology.device(y).kind &&
           topology.memory_limit(x) == topology.memory_limit(y);
  });
}

const std::vector<PlacementIndex>& PlacementTable::options(PlacementIndex behind,
                                                           std::int32_t replicas) {
  const auto [entry, is_new] = options_.try_emplace({behind, replicas});
  if (!is_new) return entry->second;
  const std::vector<std::int32_t> used =
      behind == kNothing
          ? std::vector<std::int32_t>(static_cast<std::size_t>(topology_.server_count()), 0)
          : at(behind).used_after;
  for (const PlacementPolicy policy : kPlacementPolicies) {
    const auto taken = place(policy, used, replicas, topology_);
    if (!taken) break;
    const PlacementIndex placement = index_of(used, *taken);
    std::vector<PlacementIndex>& options = entry->second;
    if (std::find(options.begin(), options.end(), placement) == options.end()) {
      options.push_back(placement);
    }
  }
  return entry->second;
}

PlacementIndex PlacementTable::index_of(const std::vector<std::int32_t>& used,
                                        const std::vector<std::int32_t>& taken) {
  const auto [entry, is_new] = indices_.try_emplace({used, taken}, placements_.end_index());
  if (!is_new) return entry->second;
  std::vector<std::int32_t> used_after = used;
  std::vector<DeviceIndex> devices = take_devices(used_after, taken, topology_);
  const std::int32_t used_count = std::accumulate(used_after.begin(), used_after.end(), 0);
  std::vector<std::int32_t> kinds;
  for (const DeviceIndex device : devices) { kinds.push_back(topology_.device(device).kind); }
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  const std::int32_t offset = topology_.offset_from_alike(devices.front(), devices.back());
  placements_.push_back({.used_after = std::move(used_after),
                         .used_count = used_count,
                         .devices = std::move(devices),
                         .kinds = std::move(kinds),
                         .offset = offset});
  first_moved_.push_back(find_moved(entry->second));
  first_alike_.push_back(find_alike(entry->second));
  return entry->second;
}

/// Finds the first placement with the devices of the last one but for their offset, which may be
/// that one.
PlacementIndex PlacementTable::find_moved(PlacementIndex placement) {
  std::vector<DeviceIndex> devices = at(placement).devices;
  for (DeviceIndex& device : devices) device.value -= at(placement).offset;
  return first_with_devices_.try_emplace(std::move(devices), placement).first->second;
}

/// Finds the first placement alike to the last one, which may be that one.
PlacementIndex PlacementTable::find_alike(PlacementIndex placement) {
  if (first_moved_[placement] != placement) return first_alike_[first_moved_[placement]];
  const Placement& own = at(placement);
  AllReduceModel reduction(own.devices, topology_);
  std::vector<PlacementIndex>& different = different_[own.devices.size()];
  const auto found = std::find_if(different.begin(), different.end(), [&](PlacementIndex other) {
    return reductions_.at(other).is_as_fast_as(reduction) &&
           have_same_kinds(at(other).devices, own.devices, topology_);
  });
  if (found != different.end()) return *found;
  different.push_back(placement);
  reductions_.emplace(placement, std::move(reduction));
  return placement;
}

}  // namespace dapple::search
