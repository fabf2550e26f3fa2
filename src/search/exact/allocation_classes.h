// Classes of stages by the number of devices of each family, wherever these devices are, and lower
// bounds over all device allocations of a class.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/search/dapple_search/dapple_search.h"
#include "dapple/search/placement/placement_space.h"
#include "search/bounds/transfer_shape.h"
#include "search/exact/device_links.h"

namespace dapple::search {

/// Lower bounds for a boundary over several allocations of its two sides.
struct BoundaryLowerBound {
  // Whether any two of these allocations fit beside each other.
  bool is_possible = false;
  // One transfer.
  Duration forward;
  Duration backward;
  // All micro-batches through the busiest port, latency included.
  Duration forward_queue;
  Duration backward_queue;
  // The interval between consecutive transfers of activations.
  Duration pace;
};

/// Vectors of device counts per family. They are numbered: 0 is no device, the last one all
/// devices.
class StageFamilies {
 public:
  StageFamilies(const CostModel& costs, PlacementSpace& placements, const SearchProblem& problem);

  /// The number of count vectors, or INT64_MAX if it is larger. O(families).
  static std::int64_t count(const PlacementSpace& placements);
  /// Lower bound on the bytes that are kept for them. O(families).
  static Bytes least_kept(const PlacementSpace& placements);

  std::int32_t size() const { return static_cast<std::int32_t>(counts_.size()); }
  std::int32_t number(const std::vector<std::int32_t>& counts) const;
  const std::vector<std::int32_t>& counts(std::int32_t number) const {
    return counts_[static_cast<std::size_t>(number)];
  }
  /// The number of devices in a count vector.
  std::int32_t replicas(std::int32_t number) const;
  /// Returns the number of the sum of two count vectors, or -1 if there are not so many devices.
  std::int32_t sum(std::int32_t a, std::int32_t b) const;
  /// Returns the number of all devices except those.
  /// Requires: there are so many devices.
  std::int32_t rest(std::int32_t number) const;

  /// Whether stages with these counts are a class of their own. In incomplete spaces with one
  /// family, only those are that make the largest share of a micro-batch smaller; they represent
  /// the counts up to the next such one, with the fastest all-reduce of all of these. If a number
  /// of replicas is pinned, all counts are, because none may represent another.
  bool counts_for_itself(std::int32_t number) const;

  /// Returns device allocations that represent all allocations with these counts: every stage with
  /// these counts takes at least as long as a stage on one of them.
  const std::vector<const DeviceAllocation*>& allocations(std::int32_t number) const {
    return allocations_[static_cast<std::size_t>(number)];
  }

  /// Returns the bounds of the boundary in front of layer `cut` between stages with counts `front`
  /// and `back`, over all of their allocations. O(1) once known.
  const BoundaryLowerBound& between(std::int32_t cut, std::int32_t front, std::int32_t back);

  struct Joint {
    Duration out;
    Duration in;
  };
  /// Lower bounds on the time for which all micro-batches keep some device of a stage with layers
  /// [begin, end) busy sending to both neighbours (`out`) or receiving from both (`in`), wherever
  /// the device is.
  Joint with_both(std::int32_t families, std::int32_t begin, std::int32_t end) const;
  /// The bytes of all remembered boundaries and representatives, by the sizes of their elements.
  Bytes kept_bytes() const {
    constexpr std::int64_t kOfAnEntry = 64;  // bytes of a map's entry beside its value
    return {static_cast<std::int64_t>(boundary_bounds_.size()) *
                (static_cast<std::int64_t>(sizeof(BoundaryLowerBound)) + kOfAnEntry) +
            static_cast<std::int64_t>(shapes_between_.size() + shapes_before_.size()) *
                (static_cast<std::int64_t>(sizeof(TransferShape)) + kOfAnEntry) +
            kept_allocations_.count};
  }
  /// Returns the same bounds over all allocations with counts `front`, for one allocation behind.
  BoundaryLowerBound before(std::int32_t cut, std::int32_t front, std::int32_t back_allocation);

 private:
  void number_counts();
  void collect_allocations();
  void represent_allocations();
  BoundaryLowerBound boundary_lower_bound(const std::vector<TransferShape>& shapes,
                                          std::int32_t cut) const;
  std::int64_t last_alike(std::int64_t replicas) const;
  std::int64_t least_sent(std::int64_t front, std::int64_t back) const;
  TransferShape widest(std::int64_t front, std::int64_t back) const;
  const std::vector<TransferShape>& shapes_between(std::int32_t front, std::int32_t back);
  const std::vector<TransferShape>& shapes_before(std::int32_t front, std::int32_t back_allocation);

  const CostModel& costs_;
  PlacementSpace& placements_;
  std::int64_t micro_batch_size_;
  std::int64_t micro_batches_;
  bool has_pinned_replicas_;
  Replicas replicas_of_stages_;
  std::vector<std::vector<std::int32_t>> counts_;
  // The numbers of all allocations, by count vector. Empty if the space is not complete.
  std::vector<std::vector<std::int32_t>> allocations_of_;
  std::vector<std::vector<const DeviceAllocation*>> allocations_;
  std::vector<DeviceAllocation> representatives_;
  Bytes kept_allocations_;
  DeviceLinks links_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<TransferShape>> shapes_between_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<TransferShape>> shapes_before_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, BoundaryLowerBound>
      boundary_bounds_;
};

}  // namespace dapple::search
