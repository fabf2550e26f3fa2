// All device allocations of a stage that differ in effect, for a pipeline that is built from its
// last stage to its first.
//
// Devices are grouped into pools of interchangeable devices with consecutive numbers: devices of
// one switch server that share one NIC or have one each, reached over the same ports, or servers of
// a single device that are alike and in one rack. The replicas of a stage stand in the order of
// their devices' numbers, so only the number of devices that a stage has of each pool matters, not
// which ones. These numbers are a device allocation. Each device of a link matrix is a pool of its
// own, unless the matrix has no direct link.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/indexed_vector.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/cost/larger_groups.h"
#include "dapple/plan/pins.h"
#include "dapple/search/indices.h"
#include "dapple/search/placement/other_shares.h"
#include "dapple/topology/topology.h"

namespace dapple::search {

/// Interchangeable devices with consecutive numbers.
struct DevicePool {
  DeviceIndex first;
  std::int32_t size = 1;
  DeviceClassIndex device_class;
};

/// Returns the pools of a topology, in the order of their devices. O(devices).
std::vector<DevicePool> device_pools(const Topology& topology);

/// All devices of one kind with one memory limit, wherever they are.
struct DeviceClass {
  std::int32_t kind = 0;
  Bytes memory_limit;
  std::int32_t size = 0;

  friend bool operator==(const DeviceClass&, const DeviceClass&) = default;
};

/// How many devices of each class a stage or a use has.
using ClassCounts = IndexedVector<DeviceClassIndex, std::int32_t>;

/// How many devices of each pool a stage has, and how these share micro-batches.
struct DeviceAllocation {
  /// Devices per pool.
  std::vector<std::int32_t> counts;
  ClassCounts class_counts;
  std::int32_t replicas = 0;
  /// The devices of a replica, which are consecutive ones of a pool.
  std::int32_t devices_per_replica = 1;
  /// The first devices of each pool, ascending. They represent any others of the pool.
  std::vector<DeviceIndex> devices;
  /// The samples of each replica; empty for those of replica_share().
  std::vector<std::int64_t> samples;
  AllReduceModel reduction;
  /// How many devices of each server the reduction of a representative on alike servers is over; 0
  /// where the numbers differ. Not set elsewhere.
  std::int32_t devices_per_server = 0;
};

/// A device allocation for a stage, and the devices in use once the stage has it.
struct PlacementChoice {
  AllocationIndex allocation;
  UseIndex used;
};

/// Whether so many replicas are the fewest with their largest share of a micro-batch that fill
/// several servers, all of which have equally many devices: gradients may be reduced within each of
/// them at first, which is faster than one ring through parts of servers. O(server groups).
bool are_first_to_fill_servers(const Topology& topology, std::int32_t replicas,
                               std::int64_t micro_batch_size);

/// The device allocations among which a search chooses.
class PlacementSpace {
 public:
  /// The space has all device allocations if there are few ways to use the pools, and otherwise
  /// those of the three policies of placement.h. With `in_order`, a stage takes only devices of
  /// pools that precede or equal the first pool in use. In an incomplete space the devices directly
  /// before those in use are then offered beside those of the policies. While no device is in use
  /// this excludes nothing, so a bound that is derived from these first allocations holds for all.
  /// Stages have the shares of replica_share() and, as allocations of their own, the others.
  /// A complete space also has allocations whose replicas have as many devices as `larger` says,
  /// with equal shares: any number of replicas in each pool whose size is a multiple of that.
  /// Requires: of two of these numbers one divides the other.
  explicit PlacementSpace(const Topology& topology, bool in_order = false,
                          OtherShares others = equal_shares_only(),
                          const std::vector<std::int32_t>& larger = {});

  const Topology& topology() const { return topology_; }
  bool is_complete() const { return is_complete_; }
  /// Whether the space has every placement that the pins allow: it is complete, or devices are
  /// taken in the order of their numbers and every stage has the whole of one or more servers,
  /// which are alike, so that each stage takes fresh servers. O(1).
  bool has_all_allowed(const Pins& pins) const;
  /// Whether one number of replicas may stand for all with the same largest share of a micro-batch:
  /// the space is incomplete, all devices are of one class, and no state is sharded, of which more
  /// replicas hold less each.
  bool merges_replica_counts() const {
    return !is_complete_ && device_classes_.size() == 1 &&
           !topology_.description().shards_optimizer;
  }
  const std::vector<DevicePool>& pools() const { return pools_; }
  const IndexedVector<DeviceClassIndex, DeviceClass>& device_classes() const {
    return device_classes_;
  }

  /// The use in which every device is free.
  static constexpr UseIndex kNothing{0};
  /// Returns the choices of so many devices among those that are free under the use `used`, in a
  /// fixed order. O(1) once known.
  const std::vector<PlacementChoice>& options(UseIndex used, std::int32_t devices);

  const DeviceAllocation& allocation(AllocationIndex index) const { return allocations_[index]; }
  /// Returns the shares of a stage on these devices besides equal ones; none if there are no
  /// others.
  std::vector<std::int64_t> other_shares(const std::vector<DeviceIndex>& devices) const {
    return others_(devices);
  }
  std::int32_t free_devices(UseIndex used) const;
  /// The free devices of each class.
  ClassCounts free_by_class(UseIndex used) const;

  /// Returns disjoint devices for stages with these allocations, first stage first. Devices are
  /// taken from the end of each pool, beginning with the last stage of those with the largest
  /// replicas, so that a replica never stands across the boundary of a group.
  /// Requires: the allocations fit beside each other.
  std::vector<std::vector<DeviceIndex>> devices_of(
      const std::vector<AllocationIndex>& allocations) const;

 private:
  void enumerate(std::size_t pool, std::int32_t replicas, std::vector<std::int32_t>& taken,
                 UseIndex used);
  void add_policies(UseIndex used, std::int32_t replicas);
  void add_nearest(UseIndex used, std::int32_t replicas);
  bool is_in_order(UseIndex used, const std::vector<std::int32_t>& taken) const;
  void add_option(UseIndex used, const std::vector<std::int32_t>& taken,
                  std::vector<PlacementChoice>& options);
  UseIndex index_of_use(const std::vector<std::int32_t>& used);
  DeviceAllocation allocation_of(const std::vector<std::int32_t>& counts) const;
  void add_larger(const std::vector<std::int32_t>& counts, std::vector<AllocationIndex>& indices);
  const std::vector<AllocationIndex>& indices_of_allocations(
      const std::vector<std::int32_t>& counts);

  const Topology& topology_;
  const bool in_order_;
  const OtherShares others_;
  // By the number of devices of a replica.
  std::map<std::int32_t, LargerGroups> larger_;
  std::vector<DevicePool> pools_;
  IndexedVector<DeviceClassIndex, DeviceClass> device_classes_;
  bool is_complete_ = true;
  // Used devices per pool.
  IndexedVector<UseIndex, std::vector<std::int32_t>> uses_;
  std::map<std::vector<std::int32_t>, UseIndex> use_indices_;
  IndexedVector<AllocationIndex, DeviceAllocation> allocations_;
  // By the devices of each pool: with equal shares, with the others if there are any, and with
  // several devices of each replica.
  std::map<std::vector<std::int32_t>, std::vector<AllocationIndex>> allocation_indices_;
  // By use and number of replicas.
  std::map<std::pair<UseIndex, std::int32_t>, std::vector<PlacementChoice>> options_;
};

}  // namespace dapple::search
