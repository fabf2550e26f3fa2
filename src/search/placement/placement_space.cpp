#include "dapple/search/placement/placement_space.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "dapple/plan/plan.h"
#include "dapple/search/placement/placement.h"

namespace dapple::search {
namespace {

/// With more ways to use the pools, the space has only the allocations of the placement policies.
constexpr std::int64_t kMostUses = 1024;

DeviceClass class_of(const Topology& topology, DeviceIndex device) {
  return {.kind = topology.device(device).kind,
          .memory_limit = topology.memory_limit(device),
          .size = 0};
}

/// Returns the index of a class in `classes`, and appends it if it is new. Classes are thus in the
/// order of their first devices.
DeviceClassIndex find_class(IndexedVector<DeviceClassIndex, DeviceClass>& classes,
                            const DeviceClass& wanted) {
  for (const DeviceClassIndex index : classes.indices()) {
    const DeviceClass& other = classes[index];
    if (other.kind == wanted.kind && other.memory_limit == wanted.memory_limit) return index;
  }
  return classes.push_back(wanted);
}

}  // namespace

std::vector<DevicePool> device_pools(const Topology& topology) {
  std::vector<DevicePool> pools;
  IndexedVector<DeviceClassIndex, DeviceClass> classes;
  for (std::int32_t d = 0; d < topology.device_count(); ++d) {
    const DeviceIndex device{d};
    if (topology.first_interchangeable(device) != device) {
      ++pools.back().size;
      continue;
    }
    pools.push_back({.first = device,
                     .size = 1,
                     .device_class = find_class(classes, class_of(topology, device))});
  }
  return pools;
}

bool are_first_to_fill_servers(const Topology& topology, std::int32_t replicas,
                               std::int64_t micro_batch_size) {
  const std::vector<ServerGroup>& servers = topology.description().servers;
  const std::int32_t devices = servers.front().devices;
  const bool are_equal = std::all_of(servers.begin(), servers.end(), [&](const ServerGroup& group) {
    return group.devices == devices;
  });
  if (!are_equal || devices == 1 || replicas <= devices || replicas % devices != 0) return false;
  const auto largest_share = [&](std::int32_t count) {
    return replica_share(micro_batch_size, count, 0).size();
  };
  return largest_share(replicas) < largest_share(replicas - devices);
}

PlacementSpace::PlacementSpace(const Topology& topology, bool in_order, OtherShares others,
                               const std::vector<std::int32_t>& larger)
    : topology_(topology),
      in_order_(in_order),
      others_(std::move(others)),
      pools_(device_pools(topology)) {
  for (const DevicePool& pool : pools_) {
    device_classes_[find_class(device_classes_, class_of(topology, pool.first))].size += pool.size;
  }
  std::int64_t uses = 1;
  for (const DevicePool& pool : pools_) {
    uses = std::min<std::int64_t>(uses * (pool.size + 1), kMostUses + 1);
  }
  is_complete_ = uses <= kMostUses;
  for (const std::int32_t devices : larger)
    larger_.emplace(devices, LargerGroups{topology, devices});
  index_of_use(std::vector<std::int32_t>(pools_.size(), 0));
}

const std::vector<PlacementChoice>& PlacementSpace::options(UseIndex used, std::int32_t replicas) {
  const auto [entry, is_new] = options_.try_emplace({used, replicas});
  if (!is_new || free_devices(used) < replicas) return entry->second;
  if (is_complete_) {
    std::vector<std::int32_t> taken;
    enumerate(0, replicas, taken, used);
  } else {
    if (in_order_) add_nearest(used, replicas);
    add_policies(used, replicas);
  }
  return entry->second;
}

/// Whether an allocation keeps devices in the order of stages. A pool may hold several stages in
/// order, because its last free devices are taken first; so no allocated pool may come after the
/// first pool in use.
bool PlacementSpace::has_all_allowed(const Pins& pins) const {
  if (is_complete_) return true;
  const TopologyDescription& description = topology_.description();
  const bool are_alike = description.servers.size() == 1 && description.racks.empty();
  return pins.in_order && pins.replicas && are_alike &&
         *pins.replicas % description.servers.front().devices == 0;
}

bool PlacementSpace::is_in_order(UseIndex used, const std::vector<std::int32_t>& taken) const {
  const std::vector<std::int32_t>& use = uses_[used];
  const auto is_some = [](std::int32_t count) { return count > 0; };
  const auto first_used = std::find_if(use.begin(), use.end(), is_some) - use.begin();
  const auto last_taken =
      taken.rend() - std::find_if(taken.rbegin(), taken.rend(), is_some) - std::ptrdiff_t{1};
  return last_taken <= first_used;
}

/// Offers the allocation of the free devices that directly precede those in use.
void PlacementSpace::add_nearest(UseIndex used, std::int32_t replicas) {
  const std::vector<std::int32_t> use = uses_[used];
  const auto first_used = static_cast<std::size_t>(
      std::find_if(use.begin(), use.end(), [](std::int32_t count) { return count > 0; }) -
      use.begin());
  std::vector<std::int32_t> taken(pools_.size(), 0);
  for (std::size_t pool = std::min(first_used + 1, pools_.size()); pool-- > 0 && replicas > 0;) {
    taken[pool] = std::min(replicas, pools_[pool].size - use[pool]);
    replicas -= taken[pool];
  }
  const std::int32_t asked = std::accumulate(taken.begin(), taken.end(), 0);
  if (replicas == 0) add_option(used, taken, options_.at({used, asked}));
}

/// Offers all allocations, in lexicographic order of the counts per pool. The first ones take as
/// many devices as possible from the last pools, so that early stages end up on early devices.
void PlacementSpace::enumerate(std::size_t pool, std::int32_t replicas,
                               std::vector<std::int32_t>& taken, UseIndex used) {
  if (pool == pools_.size()) {
    if (replicas > 0) return;
    const std::int32_t asked = std::accumulate(taken.begin(), taken.end(), 0);
    add_option(used, taken, options_.at({used, asked}));
    return;
  }
  const std::int32_t free = pools_[pool].size - uses_[used][pool];
  for (std::int32_t count = 0; count <= std::min(free, replicas); ++count) {
    taken.push_back(count);
    enumerate(pool + 1, replicas - count, taken, used);
    taken.pop_back();
  }
}

void PlacementSpace::add_policies(UseIndex used, std::int32_t replicas) {
  const std::vector<std::int32_t> use = uses_[used];
  std::vector<std::int32_t> used_of_server(static_cast<std::size_t>(topology_.server_count()), 0);
  const auto server_of = [&](std::size_t pool) {
    return topology_.device(pools_[pool].first).server;
  };
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    // A pool over several servers has one device in each; its first devices count as used first.
    for (std::int32_t i = 0; i < use[pool]; ++i) {
      const DeviceIndex device{pools_[pool].first.value + i};
      ++used_of_server[topology_.device(device).server.position()];
    }
  }
  for (const PlacementPolicy policy : kPlacementPolicies) {
    const auto per_server = place(policy, used_of_server, replicas, topology_);
    if (!per_server) return;
    std::vector<std::int32_t> left = *per_server;
    std::vector<std::int32_t> taken(pools_.size(), 0);
    for (std::size_t pool = pools_.size(); pool-- > 0;) {
      std::int32_t wanted = left[server_of(pool).position()];
      if (topology_.group_of(server_of(pool)).devices == 1) {
        wanted = 0;
        for (std::int32_t i = 0; i < pools_[pool].size; ++i) {
          const DeviceIndex device{pools_[pool].first.value + i};
          wanted += left[topology_.device(device).server.position()];
        }
      }
      taken[pool] = std::min(wanted, pools_[pool].size - use[pool]);
      left[server_of(pool).position()] -= taken[pool];
    }
    std::vector<PlacementChoice>& options = options_.at({used, replicas});
    add_option(used, taken, options);
  }
}

void PlacementSpace::add_option(UseIndex used, const std::vector<std::int32_t>& taken,
                                std::vector<PlacementChoice>& options) {
  if (in_order_ && !is_in_order(used, taken)) return;
  std::vector<std::int32_t> after = uses_[used];
  for (std::size_t pool = 0; pool < after.size(); ++pool) after[pool] += taken[pool];
  const UseIndex used_after = index_of_use(after);
  for (const AllocationIndex allocation : indices_of_allocations(taken)) {
    const bool is_known =
        std::any_of(options.begin(), options.end(),
                    [&](const PlacementChoice& other) { return other.allocation == allocation; });
    if (!is_known) options.push_back({.allocation = allocation, .used = used_after});
  }
}

UseIndex PlacementSpace::index_of_use(const std::vector<std::int32_t>& used) {
  const auto [entry, is_new] = use_indices_.try_emplace(used, uses_.end_index());
  if (is_new) uses_.push_back(used);
  return entry->second;
}

const std::vector<AllocationIndex>& PlacementSpace::indices_of_allocations(
    const std::vector<std::int32_t>& counts) {
  const auto [entry, is_new] = allocation_indices_.try_emplace(counts);
  if (!is_new) return entry->second;
  DeviceAllocation allocation = allocation_of(counts);
  std::vector<std::int64_t> samples = other_shares(allocation.devices);
  entry->second.push_back(allocations_.push_back(allocation));
  if (!samples.empty()) {
    allocation.samples = std::move(samples);
    entry->second.push_back(allocations_.push_back(std::move(allocation)));
  }
  if (!larger_.empty()) add_larger(counts, entry->second);
  return entry->second;
}

/// Adds the allocations of these devices as replicas of several devices each.
void PlacementSpace::add_larger(const std::vector<std::int32_t>& counts,
                                std::vector<AllocationIndex>& indices) {
  if (!is_complete_) return;
  for (const auto& [devices, groups] : larger_) {
    bool are_whole = true;
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
      const bool is_pool_whole = pools_[pool].size % devices == 0 && counts[pool] % devices == 0;
      are_whole = are_whole && (counts[pool] == 0 || is_pool_whole);
    }
    if (!are_whole) continue;
    DeviceAllocation allocation = allocation_of(counts);
    allocation.replicas /= devices;
    allocation.devices_per_replica = devices;
    allocation.reduction = groups.reduction(allocation.devices);
    indices.push_back(allocations_.push_back(std::move(allocation)));
  }
}

/// Returns an allocation with equal shares.
DeviceAllocation PlacementSpace::allocation_of(const std::vector<std::int32_t>& counts) const {
  ClassCounts class_counts(device_classes_.size());
  std::vector<DeviceIndex> devices;
  for (std::size_t pool = 0; pool < counts.size(); ++pool) {
    class_counts[pools_[pool].device_class] += counts[pool];
    for (std::int32_t i = 0; i < counts[pool]; ++i) {
      devices.push_back({pools_[pool].first.value + i});
    }
  }
  const auto replicas = static_cast<std::int32_t>(devices.size());
  AllReduceModel reduction(devices, topology_);
  return {.counts = counts,
          .class_counts = std::move(class_counts),
          .replicas = replicas,
          .devices = std::move(devices),
          .samples = {},
          .reduction = std::move(reduction)};
}

std::int32_t PlacementSpace::free_devices(UseIndex used) const {
  const std::vector<std::int32_t>& use = uses_[used];
  return topology_.device_count() - std::accumulate(use.begin(), use.end(), 0);
}

ClassCounts PlacementSpace::free_by_class(UseIndex used) const {
  ClassCounts free(device_classes_.size());
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    free[pools_[pool].device_class] += pools_[pool].size - uses_[used][pool];
  }
  return free;
}

std::vector<std::vector<DeviceIndex>> PlacementSpace::devices_of(
    const std::vector<AllocationIndex>& allocations) const {
  std::vector<std::vector<DeviceIndex>> stages(allocations.size());
  std::vector<std::size_t> order(allocations.size());
  std::iota(order.rbegin(), order.rend(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return allocation(allocations[a]).devices_per_replica >
           allocation(allocations[b]).devices_per_replica;
  });
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    std::int32_t end = pools_[pool].first.value + pools_[pool].size;
    for (const std::size_t stage : order) {
      const std::int32_t count = allocation(allocations[stage]).counts[pool];
      end -= count;
      for (std::int32_t i = 0; i < count; ++i) stages[stage].push_back({end + i});
    }
  }
  return stages;
}

}  // namespace dapple::search
