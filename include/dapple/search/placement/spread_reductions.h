// All-reduces that represent those over all sets of as many devices where servers are alike, each
// made once for all searches of a topology.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "dapple/cost/all_reduce.h"
#include "dapple/topology/topology.h"

namespace dapple::search {

/// It counts servers as alike if they are equal switch servers, so that only the number of servers
/// in use matters.
class SpreadReductions {
 public:
  /// O(devices).
  explicit SpreadReductions(const Topology& topology);

  /// Returns the topology without PCIe roots, racks and pods. Nothing is slower in it, and all
  /// servers are equally near to each other.
  const Topology& open_topology() const { return ways_.front(); }
  bool has_alike_servers() const { return is_alike_; }

  struct Reduction {
    /// How many devices of each server it is over; 0 where the numbers differ.
    std::int32_t devices_per_server = 0;
    AllReduceModel model;
  };
  /// Returns all-reduces of which one is no slower than that over any other set of so many devices:
  /// over the first ones, over all but the last of these and a device of another server, and over
  /// equal numbers on each server, spread over its NICs. A measured figure for such devices may be
  /// slower than the links allow for others, so there are some with measurements and some without.
  /// They have no ports (AllReduceModel::forget_ports()). The first call for a number takes
  /// O(devices log devices) for each of its divisors, others O(log numbers). Calls may be made at
  /// the same time.
  /// Requires: has_alike_servers().
  const std::vector<Reduction>& over(std::int32_t devices) const;

 private:
  std::vector<Reduction> make(std::int32_t devices) const;
  void add(std::int32_t devices, const Topology& way, std::vector<Reduction>& reductions) const;

  // The open topology and, where servers are alike and all-reduces were measured, that without
  // these measurements.
  std::vector<Topology> ways_;
  bool is_alike_ = false;
  mutable std::mutex mutex_;
  mutable std::map<std::int32_t, std::vector<Reduction>> known_;
};

}  // namespace dapple::search
