// Replicas that are several consecutive devices each: groups of a form of parallelism that are
// larger than the devices of a topology of smaller groups (device_groups.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// A topology in groups of so many consecutive devices, seen as one device each (docs/model.md,
/// section 4.1). What devices of a group share, such as a NIC, is divided among them once more.
class LargerGroups {
 public:
  /// O(devices). Requires: fault() is empty.
  LargerGroups(const Topology& topology, std::int32_t devices);

  /// Returns why the devices of a topology form no groups of so many; empty if they do. Groups are
  /// within one server. O(devices).
  static std::string fault(const Topology& topology, std::int64_t devices);

  /// Returns the all-reduces of replicas on these devices. In a group every device reduces its part
  /// with those at the same position in the other groups, all of them at the same time; the time is
  /// that of the slowest, with the links shared by all. Ports are those of the topology.
  /// Requires: whole groups, ascending.
  AllReduceModel reduction(const std::vector<DeviceIndex>& devices) const;

 private:
  explicit LargerGroups(std::int32_t devices, Topology groups)
      : devices_(devices), groups_(std::move(groups)) {}
  bool add_hop(const Topology& topology, DeviceIndex from, DeviceIndex to);
  bool add_ports(const Topology& topology);

  std::int32_t devices_;
  Topology groups_;
  PortParts ports_;
};

}  // namespace dapple
