// Every way to put a stage on devices that makes a difference, for a pipeline that is built from
// its last stage to its first.
//
// Devices fall into pools: neighbours in number that nothing tells apart (of one switch server,
// with one NIC together or one each, reached alike, or servers of a single device that are alike
// and in one rack). A stage's replicas stand in the order of their devices' numbers, so which
// devices of a pool a stage has makes no difference, only how many: a taking. Devices of a link
// matrix are pools of their own, but where it has no direct link.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/topology/topology.h"

namespace dapple::search {

/// Devices that are interchangeable, consecutive in number.
struct DevicePool {
  DeviceIndex first;
  std::int32_t size = 1;
  std::int32_t family = 0;  // position in PlacementSpace::families()
};

/// The pools of a topology, in the order of their devices. O(devices).
std::vector<DevicePool> device_pools(const Topology& topology);

/// Devices alike in kind and memory, wherever they are.
struct DeviceFamily {
  std::int32_t kind = 0;
  Bytes memory_limit;
  std::int32_t size = 0;

  friend bool operator==(const DeviceFamily&, const DeviceFamily&) = default;
};

/// How many devices of each pool a stage has.
struct DeviceAllocation {
  std::vector<std::int32_t> counts;    // per pool
  std::vector<std::int32_t> families;  // per family
  std::int32_t replicas = 0;
  std::vector<DeviceIndex> devices;  // the first of each pool, ascending: they stand for any others
  AllReduceModel reduction;
};

/// Where a stage may go: an allocation of devices, and what is in use once it is taken. Both are
/// numbers in the placement space that offers the choice.
struct PlacementChoice {
  std::int32_t allocation = 0;
  std::int32_t used = 0;
};

class PlacementSpace {
 public:
  /// All takings where there are few ways to use the pools, else those of the three policies of
  /// placement.h. In order: of devices before all that are used, and without policies those right
  /// before them; as the first taking all the same, so that whatever is bounded by these alone is
  /// bounded for any.
  explicit PlacementSpace(const Topology& topology, bool in_order = false);

  const Topology& topology() const { return topology_; }
  bool is_complete() const { return is_complete_; }
  const std::vector<DevicePool>& pools() const { return pools_; }
  const std::vector<DeviceFamily>& families() const { return families_; }

  /// Nothing used yet.
  static constexpr std::int32_t kNothing = 0;
  /// Takings of `replicas` devices beside what is used; in a fixed order. O(1) once known.
  const std::vector<PlacementChoice>& options(std::int32_t used, std::int32_t replicas);

  const DeviceAllocation& allocation(std::int32_t number) const {
    return allocations_[static_cast<std::size_t>(number)];
  }
  std::int32_t allocation_count() const { return static_cast<std::int32_t>(allocations_.size()); }
  std::int32_t free_devices(std::int32_t used) const;
  /// Free devices per family.
  std::vector<std::int32_t> free_families(std::int32_t used) const;

  /// Devices for stages with these takings, first stage first, that share none; taken from the end
  /// of each pool for the last stage on. Requires: they fit together.
  std::vector<std::vector<DeviceIndex>> devices_of(
      const std::vector<std::int32_t>& allocations) const;

 private:
  void enumerate(std::size_t pool, std::int32_t replicas, std::vector<std::int32_t>& taken,
                 std::int32_t used);
  void add_policies(std::int32_t used, std::int32_t replicas);
  void add_nearest(std::int32_t used, std::int32_t replicas);
  bool is_in_order(std::int32_t used, const std::vector<std::int32_t>& taken) const;
  void add_option(std::int32_t used, const std::vector<std::int32_t>& taken,
                  std::vector<PlacementChoice>& options);
  std::int32_t number_of_use(const std::vector<std::int32_t>& used);
  std::int32_t number_of_allocation(const std::vector<std::int32_t>& counts);

  const Topology& topology_;
  const bool in_order_;
  std::vector<DevicePool> pools_;
  std::vector<DeviceFamily> families_;
  bool is_complete_ = true;
  std::vector<std::vector<std::int32_t>> uses_;  // per pool
  std::map<std::vector<std::int32_t>, std::int32_t> use_numbers_;
  std::vector<DeviceAllocation> allocations_;
  std::map<std::vector<std::int32_t>, std::int32_t> taking_numbers_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<PlacementChoice>> options_;
};

}  // namespace dapple::search
