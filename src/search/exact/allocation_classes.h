// Classes of device allocations, by the number of devices of each device class, wherever these
// devices are, and lower bounds over all allocations of a class.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/indices.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/search/placement/spread_reductions.h"
#include "dapple/search/search_problem.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/transfer_shape.h"
#include "search/exact/device_links.h"

namespace dapple::search {

/// Lower bounds for a boundary over several allocations of its two sides; none where no two of them
/// fit beside each other.
using BoundaryLowerBound = std::optional<BoundaryBound>;

/// Returns disjoint devices for two stages with these allocations, and their shares.
/// Requires: the allocations fit beside each other.
BoundarySides sides_of(const PlacementSpace& placements, AllocationIndex front,
                       AllocationIndex back);

/// All classes of device allocations. The first one has no device, and the last one has all.
class AllocationClasses {
 public:
  /// `reductions` are of the topology, and may be shared with other classes; if null, they are made
  /// where they are needed.
  AllocationClasses(const CostModel& costs, PlacementSpace& placements,
                    const SearchProblem& problem,
                    std::shared_ptr<const SpreadReductions> reductions = nullptr);

  /// The number of classes, or INT64_MAX if it is larger. O(device classes).
  static std::int64_t count(const PlacementSpace& placements);
  /// Lower bound on the bytes that are kept for them. O(device classes * devices^2).
  static Bytes least_kept(const CostModel& costs, const PlacementSpace& placements,
                          std::int64_t micro_batch_size);

  static constexpr AllocationClassIndex kNoDevices{0};
  IndexRange<AllocationClassIndex> all() const { return counts_.indices(); }
  /// All classes but that of no devices.
  IndexRange<AllocationClassIndex> not_empty() const {
    return {kNoDevices.next(), counts_.end_index()};
  }
  std::size_t size() const { return counts_.size(); }
  AllocationClassIndex class_of(const ClassCounts& counts) const;
  const ClassCounts& counts(AllocationClassIndex index) const { return counts_[index]; }
  /// The number of devices of an allocation in the class, of which a replica may have several.
  std::int32_t replicas(AllocationClassIndex index) const;
  /// Returns the sum of the speeds of a class's devices, in `work`. O(device classes).
  double capacity(AllocationClassIndex index, const PrefixBound& work) const;
  /// Returns the class of the devices of both, or nullopt if there are not so many devices.
  std::optional<AllocationClassIndex> sum(AllocationClassIndex a, AllocationClassIndex b) const;
  /// Returns the classes with one more device than this one, by device class.
  std::vector<AllocationClassIndex> with_one_more(AllocationClassIndex index) const;
  /// Returns the class of all devices except those.
  AllocationClassIndex rest(AllocationClassIndex index) const;

  /// Whether stages of this class are tried, and not represented by those of another class. In
  /// incomplete spaces with one device class, only those are tried that make the largest share of a
  /// micro-batch smaller; they represent the classes up to the next such one, with the fastest
  /// all-reduce of all of these. If a number of replicas is pinned, all are tried, because none may
  /// represent another.
  bool counts_for_itself(AllocationClassIndex index) const;

  /// Returns device allocations that represent all allocations of the class: every stage on one of
  /// the class takes at least as long as a stage on one of these. There are none for more devices
  /// than a micro-batch has samples.
  const std::vector<const DeviceAllocation*>& allocations(AllocationClassIndex index) const {
    return allocations_[index];
  }

  /// Whether some allocation of the class has replicas of so many devices. O(allocations).
  bool has_replicas_of(AllocationClassIndex index, std::int32_t devices) const;

  /// Returns the first class whose boundaries have the bounds of those of `index`: in incomplete
  /// spaces the first with as many devices, and elsewhere the class itself. O(1).
  AllocationClassIndex alike_at_boundaries(AllocationClassIndex index) const {
    return alike_at_boundaries_[index];
  }

  /// Returns the bounds of the boundary at `cut` between stages of classes `front` and `back`, over
  /// all of their allocations.
  BoundaryLowerBound bound_between(CutIndex cut, AllocationClassIndex front,
                                   AllocationClassIndex back);
  /// Returns the same, and remembers it. O(log boundaries) once known.
  const BoundaryLowerBound& between(CutIndex cut, AllocationClassIndex front,
                                    AllocationClassIndex back);
  /// Returns the same bounds as between() over all allocations of class `front`, for one allocation
  /// behind.
  BoundaryLowerBound before(CutIndex cut, AllocationClassIndex front, AllocationIndex back);

  /// The replicas on one side of a boundary, and whether micro-batches are dealt to them.
  struct Side {
    std::int32_t replicas = 1;
    bool deals = false;

    friend auto operator<=>(const Side&, const Side&) = default;
  };
  /// Returns bounds for a boundary where micro-batches are dealt on some side, wherever the devices
  /// are. O(layers).
  BoundaryBound bound_dealt(CutIndex cut, Side front, Side back) const;

  /// Whether all servers are equal switch servers with several devices each, so that stages whose
  /// boundary stays within servers can be told from others (D6).
  bool tells_servers_apart() const {
    return is_alike_ && replicas_of_stages_ == Replicas::Together;
  }
  /// Returns the same bounds as between() for boundaries of which at least one tensor passes from
  /// server to server (D6). Requires: tells_servers_apart().
  BoundaryLowerBound bound_across_servers(CutIndex cut, AllocationClassIndex front,
                                          AllocationClassIndex back) const;
  /// The least devices of a stage of that class on a server, for each sample of a micro-batch that
  /// they process, in units of 1 / kDeviceParts, rounded down.
  std::int64_t devices_per_sample(AllocationClassIndex index) const;
  /// Upper bound on the devices of a stage of class `index` on one server, if the same samples are
  /// processed there by so many devices of others for each sample, and `more` further devices of
  /// the server are not its own (D6). Requires: tells_servers_apart().
  std::int32_t most_on_a_server(AllocationClassIndex index, std::int64_t others_per_sample,
                                std::int32_t more) const;
  static constexpr std::int64_t kDeviceParts = std::int64_t{1} << 20;

  /// Whether boundaries are bounded by the number of replicas alone, so that more replicas on
  /// either side never make one slower.
  bool bounds_boundaries_by_shares() const {
    return members_.empty() && replicas_of_stages_ == Replicas::Together;
  }

  /// Lower bounds on the time for which all micro-batches keep some device of a stage busy sending
  /// to both neighbours (`out`) or receiving from both (`in`).
  struct BusyTimes {
    Duration out;
    Duration in;
  };
  /// Returns busy_out and busy_in of (C5) for a stage with layers [begin, end), wherever its
  /// devices are.
  BusyTimes busy_with_neighbours(Side stage, CutIndex begin, CutIndex end) const;

  /// The bytes of all remembered boundaries and representatives, by the sizes of their elements.
  Bytes kept_bytes() const {
    constexpr std::int64_t kOfAnEntry = 64;  // bytes of a map's entry beside its value
    return {static_cast<std::int64_t>(boundary_bounds_.size()) *
                (static_cast<std::int64_t>(sizeof(BoundaryLowerBound)) + kOfAnEntry) +
            static_cast<std::int64_t>(shapes_between_.size() + shapes_before_.size()) *
                (static_cast<std::int64_t>(sizeof(TransferShape)) + kOfAnEntry) +
            kept_allocations_.count};
  }

 private:
  void enumerate_classes();
  void find_alike_at_boundaries();
  void collect_allocations();
  void represent_allocations();
  bool has_own_figures(AllocationClassIndex index) const;
  void add_representative(AllocationClassIndex index, DeviceAllocation allocation);
  BoundaryLowerBound boundary_lower_bound(const std::vector<TransferShape>& shapes,
                                          CutIndex cut) const;
  std::int64_t last_alike(std::int64_t replicas) const;
  std::int64_t least_sent(std::int64_t front, std::int64_t back) const;
  TransferShape widest(std::int64_t front, std::int64_t back) const;
  const std::vector<TransferShape>& shapes_between(AllocationClassIndex front,
                                                   AllocationClassIndex back);
  const std::vector<TransferShape>& shapes_before(AllocationClassIndex front, AllocationIndex back);

  const CostModel& costs_;
  PlacementSpace& placements_;
  std::shared_ptr<const SpreadReductions> reductions_;
  std::int64_t micro_batch_size_;
  std::int64_t micro_batches_;
  bool has_pinned_replicas_;
  Replicas replicas_of_stages_;
  Transfers transfers_;
  IndexedVector<AllocationClassIndex, ClassCounts> counts_;
  IndexedVector<AllocationClassIndex, AllocationClassIndex> alike_at_boundaries_;
  // All allocations of each class. Empty if the space is not complete.
  IndexedVector<AllocationClassIndex, std::vector<AllocationIndex>> members_;
  // Those of them that represent the others, or made-up ones in representatives_.
  IndexedVector<AllocationClassIndex, std::vector<const DeviceAllocation*>> allocations_;
  // A deque, because allocations_ points to its elements.
  std::deque<DeviceAllocation> representatives_;
  Bytes kept_allocations_;
  // Whether servers are alike, of several devices each, and the space is not complete.
  bool is_alike_ = false;
  // The widest and quickest way from server to server.
  PortShape across_;
  DeviceLinks links_;
  std::map<std::pair<AllocationClassIndex, AllocationClassIndex>, std::vector<TransferShape>>
      shapes_between_;
  std::map<std::pair<AllocationClassIndex, AllocationIndex>, std::vector<TransferShape>>
      shapes_before_;
  std::map<std::tuple<CutIndex, AllocationClassIndex, AllocationClassIndex>, BoundaryLowerBound>
      boundary_bounds_;
};

}  // namespace dapple::search
