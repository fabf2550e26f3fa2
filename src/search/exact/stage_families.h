// Stages by how many devices of each family they have, wherever these are: what any of their
// takings take at least.
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

/// What a boundary takes at least, over several ways to put its sides.
struct BoundaryLowerBound {
  bool is_possible = false;  // some way puts both sides beside each other
  Duration forward;
  Duration backward;
  Duration forward_queue;  // all micro-batches through its busiest port
  Duration backward_queue;
  Duration pace;  // how long its busiest port is busy with one micro-batch's activations
};

/// Counts per family are numbered: 0 is none, the last is all devices.
class StageFamilies {
 public:
  StageFamilies(const CostModel& costs, PlacementSpace& placements, const SearchProblem& problem);

  /// How many there are, and what is kept of them at least. O(families).
  static std::int64_t count(const PlacementSpace& placements);
  static Bytes least_kept(const PlacementSpace& placements);

  std::int32_t size() const { return static_cast<std::int32_t>(counts_.size()); }
  std::int32_t number(const std::vector<std::int32_t>& counts) const;
  const std::vector<std::int32_t>& counts(std::int32_t number) const {
    return counts_[static_cast<std::size_t>(number)];
  }
  std::int32_t replicas(std::int32_t number) const;
  /// Devices beside others; -1 if there are not so many.
  std::int32_t sum(std::int32_t a, std::int32_t b) const;
  /// All devices but those. Requires: they are within what there is.
  std::int32_t rest(std::int32_t number) const;

  /// Whether stages with these counts need a look of their own. In large spaces with one family
  /// only those do that make the largest share of a micro-batch smaller; they stand for the counts
  /// up to the next such one, with the fastest all-reduce of them all. Where a number of replicas
  /// is pinned, all do, as none may stand for another.
  bool counts_for_itself(std::int32_t number) const;

  /// One taking for each way in which stages with these counts differ, at least in bounds: every
  /// stage with these counts takes as long as one of them or longer.
  const std::vector<const DeviceAllocation*>& allocations(std::int32_t number) const {
    return allocations_[static_cast<std::size_t>(number)];
  }

  /// Over all placements of both sides. O(1) once known.
  const BoundaryLowerBound& between(std::int32_t cut, std::int32_t front, std::int32_t back);
  /// How long all micro-batches keep some device busy that sends to both its neighbours, or
  /// receives from them, wherever it is.
  struct Joint {
    Duration out;
    Duration in;
  };
  Joint with_both(std::int32_t families, std::int32_t begin, std::int32_t end) const;
  /// The bytes of all remembered boundaries and representatives, by the sizes of their elements.
  Bytes kept_bytes() const {
    constexpr std::int64_t kOfAnEntry = 64;  // of the map, beside its value
    return {static_cast<std::int64_t>(floors_.size()) *
                (static_cast<std::int64_t>(sizeof(BoundaryLowerBound)) + kOfAnEntry) +
            static_cast<std::int64_t>(shapes_between_.size() + shapes_before_.size()) *
                (static_cast<std::int64_t>(sizeof(TransferShape)) + kOfAnEntry) +
            kept_takings_.count};
  }
  /// Over all placements of the front beside that taking behind.
  BoundaryLowerBound before(std::int32_t cut, std::int32_t front, std::int32_t back_allocation);

 private:
  void number_counts();
  void collect_allocations();
  void represent_allocations();
  BoundaryLowerBound floor_of(const std::vector<TransferShape>& shapes, std::int32_t cut) const;
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
  std::vector<std::vector<std::int32_t>> takings_of_;  // numbers; only of complete spaces
  std::vector<std::vector<const DeviceAllocation*>> allocations_;
  std::vector<DeviceAllocation> representatives_;
  Bytes kept_takings_;
  DeviceLinks links_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<TransferShape>> shapes_between_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<TransferShape>> shapes_before_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, BoundaryLowerBound> floors_;
};

}  // namespace dapple::search
