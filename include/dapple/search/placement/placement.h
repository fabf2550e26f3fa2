// Where stages may be put: the three policies of DAPPLE (PPoPP'21) section 4.2, for a pipeline that
// is built from its last stage to its first. Departures: 1. built from the last stage, so servers
// are filled from the last to the first, and a plan's first stage ends up on the first server;
// 2. inside a link-matrix server devices are taken along its fill order (topology.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/topology/topology.h"

namespace dapple::search {

enum class PlacementPolicy {
  FreshFirst,    // servers that nobody uses yet, then the others
  AppendFirst,   // servers already in use, then the others
  ScatterFirst,  // evenly over all servers that have devices left
};
inline constexpr PlacementPolicy kPlacementPolicies[] = {
    PlacementPolicy::FreshFirst, PlacementPolicy::AppendFirst, PlacementPolicy::ScatterFirst};

/// How many devices to take from each server, given how many of each are used. Nothing if fewer
/// than `replicas` are left. O(servers * replicas).
std::optional<std::vector<std::int32_t>> place(PlacementPolicy policy,
                                               const std::vector<std::int32_t>& used,
                                               std::int32_t replicas, const Topology& topology);

/// The devices that servers give next, ascending, so many of each; they count as used then.
/// O(servers + devices). Requires: as many are left.
std::vector<DeviceIndex> take_devices(std::vector<std::int32_t>& used,
                                      const std::vector<std::int32_t>& taken,
                                      const Topology& topology);

/// A stage's devices, and what is used once they are taken.
struct Placement {
  std::vector<std::int32_t> used_after;  // per server
  std::int32_t used_count = 0;           // sum of used_after
  std::vector<DeviceIndex> devices;      // ascending
  std::vector<std::int32_t> kinds;       // of the devices, distinct, ascending
  AllReduceModel reduction;
};

/// Numbers placements in the order in which they are first asked for; equal ones once.
class PlacementTable {
 public:
  explicit PlacementTable(const Topology& topology) : topology_(topology) {}

  /// Devices for `replicas` replicas beside what is used after placement `behind` (-1: nothing is).
  /// Distinct placements of all policies, in the policies' order.
  const std::vector<std::int32_t>& options(std::int32_t behind, std::int32_t replicas);

  const Placement& at(std::int32_t placement) const {
    return placements_[static_cast<std::size_t>(placement)];
  }
  std::int32_t size() const { return static_cast<std::int32_t>(placements_.size()); }

 private:
  std::int32_t number(const std::vector<std::int32_t>& used,
                      const std::vector<std::int32_t>& taken);

  const Topology& topology_;
  std::vector<Placement> placements_;
  std::map<std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>, std::int32_t> numbers_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> options_;
};

}  // namespace dapple::search
