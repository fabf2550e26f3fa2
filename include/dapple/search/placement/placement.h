// The three placement policies of DAPPLE (PPoPP'21) section 4.2, for a pipeline that is built from
// its last stage to its first. Departures: 1. because the last stage is placed first, servers are
// filled from the last to the first, and a plan's first stage ends up on the first server; 2.
// inside a link-matrix server, devices are taken along its fill order (topology.h).
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
  /// Unused servers, then the others.
  FreshFirst,
  /// Servers already in use, then the others.
  AppendFirst,
  /// Evenly over all servers that have free devices.
  ScatterFirst,
};
inline constexpr PlacementPolicy kPlacementPolicies[] = {
    PlacementPolicy::FreshFirst, PlacementPolicy::AppendFirst, PlacementPolicy::ScatterFirst};

/// Returns how many devices a stage takes from each server, given how many devices of each are
/// used, or nullopt if fewer than `replicas` are free. O(servers * replicas).
std::optional<std::vector<std::int32_t>> place(PlacementPolicy policy,
                                               const std::vector<std::int32_t>& used,
                                               std::int32_t replicas, const Topology& topology);

/// Takes the next `taken[s]` free devices of each server s, adds them to `used`, and returns them,
/// ascending. O(servers + devices).
/// Requires: enough devices are free.
std::vector<DeviceIndex> take_devices(std::vector<std::int32_t>& used,
                                      const std::vector<std::int32_t>& taken,
                                      const Topology& topology);

/// The devices of a stage, and all that are in use once the stage has been placed.
struct Placement {
  /// Used devices per server.
  std::vector<std::int32_t> used_after;
  /// Sum of used_after.
  std::int32_t used_count = 0;
  /// The devices of the stage, ascending.
  std::vector<DeviceIndex> devices;
  /// The distinct kinds of these devices, ascending.
  std::vector<std::int32_t> kinds;
  AllReduceModel reduction;
};

/// Numbers placements in the order in which they are first requested; equal placements have one
/// number.
class PlacementTable {
 public:
  explicit PlacementTable(const Topology& topology) : topology_(topology) {}

  /// Returns the placements of `replicas` replicas on devices that are free after placement
  /// `behind` (-1: all devices are free): those of all policies, each once, in the order of the
  /// policies.
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
