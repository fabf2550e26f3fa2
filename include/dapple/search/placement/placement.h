// The three placement policies of DAPPLE (PPoPP'21) section 4.2, for a pipeline that is built from
// its last stage to its first. Departures: 1. because the last stage is placed first, servers are
// filled from the last to the first, and a plan's first stage ends up on the first server; 2.
// inside a link-matrix server, devices are taken along its fill order (topology.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/indexed_vector.h"
#include "dapple/cost/all_reduce.h"
#include "dapple/search/indices.h"
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
  /// What Topology::offset_from_alike() says of the devices.
  std::int32_t offset = 0;
};

/// The placements of two neighbouring stages without the numbers of their devices. Transfers
/// between the stages take the same time for equal pairs.
struct PlacementPair {
  PlacementIndex front;
  PlacementIndex back;
  /// The offset of the devices in front less that of the others.
  std::int32_t offset = 0;

  friend auto operator<=>(const PlacementPair&, const PlacementPair&) = default;
};

/// Whether two stages on these devices have replicas of the same kinds with the same memory limits,
/// in the same order. O(devices).
bool have_same_kinds(const std::vector<DeviceIndex>& a, const std::vector<DeviceIndex>& b,
                     const Topology& topology);

/// Numbers placements in the order in which they are first requested; equal placements have one
/// number.
class PlacementTable {
 public:
  explicit PlacementTable(const Topology& topology) : topology_(topology) {}

  /// Stands for the placement behind the last stage, where all devices are free.
  static constexpr PlacementIndex kNothing{-1};
  /// Returns the placements of `replicas` replicas on devices that are free after placement
  /// `behind`: those of all policies, each once, in the order of the policies.
  const std::vector<PlacementIndex>& options(PlacementIndex behind, std::int32_t replicas);

  const Placement& at(PlacementIndex placement) const { return placements_[placement]; }
  /// Returns the first placement whose stages cost as much: its devices are of the same kinds with
  /// the same memory limits, in the same order, and reduce as fast. O(1).
  PlacementIndex first_alike(PlacementIndex placement) const { return first_alike_[placement]; }
  /// Returns the all-reduce of the first placement alike, over its own ports. O(log placements).
  const AllReduceModel& reduction(PlacementIndex placement) const {
    return reductions_.at(first_alike_[placement]);
  }
  /// Returns a pair that is the same for all placements with the same links between them. O(1).
  PlacementPair pair(PlacementIndex front, PlacementIndex back) const {
    return {first_moved_[front], first_moved_[back], at(front).offset - at(back).offset};
  }
  /// The index of the placement that is numbered next; all placements stand before it.
  PlacementIndex end_index() const { return placements_.end_index(); }

 private:
  PlacementIndex index_of(const std::vector<std::int32_t>& used,
                          const std::vector<std::int32_t>& taken);
  PlacementIndex find_moved(PlacementIndex placement);
  PlacementIndex find_alike(PlacementIndex placement);

  const Topology& topology_;
  IndexedVector<PlacementIndex, Placement> placements_;
  // The first placement whose devices are the same but for their offset.
  IndexedVector<PlacementIndex, PlacementIndex> first_moved_;
  std::map<std::vector<DeviceIndex>, PlacementIndex> first_with_devices_;
  IndexedVector<PlacementIndex, PlacementIndex> first_alike_;
  // The all-reduces of the placements that are alike to none before them.
  std::map<PlacementIndex, AllReduceModel> reductions_;
  // The placements that are alike to none before them, by their number of devices.
  std::map<std::size_t, std::vector<PlacementIndex>> different_;
  std::map<std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>, PlacementIndex>
      indices_;
  std::map<std::pair<PlacementIndex, std::int32_t>, std::vector<PlacementIndex>> options_;
};

}  // namespace dapple::search
