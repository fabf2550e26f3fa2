// What the stages before a cut add at least to the pipeline behind it, wherever they are put: the
// bounds that close partial plans of the exact search.
//
// Source: the recursion of bound.h, read from the first stage to the last. Its result is the
// largest of terms that are each linear in one part of the label behind the cut; a front keeps
// their coefficients. Departure: of the terms that multiply the round trip, one is kept, and of
// those that the stages' orders add (order_bound.h) one as well.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "dapple/search/dapple_search/dapple_search.h"
#include "dapple/search/exact/exact_search.h"
#include "dapple/search/placement/placement_space.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/transfer_shape.h"
#include "search/exact/stage_columns.h"
#include "search/exact/stage_families.h"
#include "search/table_count.h"

namespace dapple::search {

/// Stages before a cut. The plan's end is at least every one of: end + E, last + tail, span + V,
/// trip + RT, waves * RT + steep, own, crossing + part of the tail, with the label (RT, V, E, tail)
/// of what is behind.
struct CompletionFunction {
  Duration end;
  Duration last;
  Duration span;
  Duration trip;
  Duration steep;
  std::int64_t waves = 0;
  Duration own;
  Duration
      crossing;  // what a stage's depth costs in the end or in the beginning, see order_bound.h
  std::int64_t tail_parts = 0;  // the part of the tail that comes to it, in parts of kTailParts
  Duration slowest;             // forward of its stages, or micro-batch over one of its boundaries
  Duration sent;  // where links are shared: own >= sent + what the last stage sends to both sides,
  Duration received;           // and the same for what it receives
  std::int32_t families = 0;   // of its last stage, as StageFamilies numbers them
  std::int32_t begin = kNone;  // its first layer, where it matters for the above
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int64_t kTailParts = std::int64_t{1} << 20;

  /// At least, of all, with that tail behind.
  Duration crossed(Duration tail) const {
    return crossing + Duration{divide_down(Wide{tail.ns} * tail_parts, kTailParts)};
  }
};

class CompletionBounds {
 public:
  /// Plans whose bound is `threshold` or more may count as any bound from it on.
  /// O(layers^2 * devices^2) at most, times the fronts of a cut that no other is as good as; far
  /// less with a good threshold.
  /// Where the allowance ends first, nothing is known.
  CompletionBounds(const CostModel& costs, PlacementSpace& placements, const SearchProblem& problem,
                   Duration threshold, const Allowance::Limits& limits);

  /// Whether there is room for what is kept before any front; where there is none, nothing would be
  /// known. O(families of devices).
  static bool has_room(const CostModel& costs, const PlacementSpace& placements,
                       const Allowance::Limits& limits);

  bool is_stopped() const { return is_stopped_; }

  /// At least, of all plans. Requires: not stopped.
  Duration least() const { return least_; }

  /// What is behind a cut: the devices that are used there, and the taking of its first stage.
  struct Behind {
    std::int32_t cut = 0;
    std::int32_t used = 0;
    std::int32_t allocation = 0;
  };
  /// Fronts that may stand before it, their boundary to it included. O(1) once known.
  const std::vector<CompletionFunction>& choices(const Behind& behind);

  /// Fronts that are kept, over all cuts and choices.
  std::int64_t front_count() const { return front_count_; }
  Bytes kept_bytes() const {
    return allowance_.kept() + choice_count_ * Bytes{sizeof(CompletionFunction)} +
           families_.kept_bytes();
  }
  std::int64_t work() const { return allowance_.work(); }

 private:
  /// Stages that begin at a cut: their devices, and all that are used with them.
  struct Extension {
    std::int32_t cut = 0;
    std::int32_t families = 0;
    std::int32_t after = 0;
    bool recompute = false;
  };
  bool is_out_of_patience() {
    allowance_.keep(families_.kept_bytes() - families_kept_);
    families_kept_ = families_.kept_bytes();
    tables_.add_to(allowance_);
    return !allowance_.spend(1);
  }
  void grow_from(std::int32_t cut, std::int32_t used);
  void put_behind(const std::vector<CompletionFunction>& functions, const Extension& extension);
  CompletionFunction over_boundary(const CompletionFunction& function,
                                   const BoundaryLowerBound& boundary, std::int32_t cut) const;
  bool is_heavy(std::int32_t cut, std::int32_t families) const;
  void leave_idle(std::int32_t cut);
  std::int32_t free_families(std::int32_t used);
  std::vector<CompletionFunction>& kept(std::int32_t cut, std::int32_t used);
  double capacity(std::int32_t families) const;
  const StageColumn& column(std::int32_t end, std::int32_t families, bool recompute);

  const CostModel& costs_;
  PlacementSpace& placements_;
  const SearchProblem& problem_;
  std::int64_t micro_batches_;
  Duration threshold_;
  Allowance allowance_;
  TableCount tables_;
  Bytes families_kept_;
  Duration least_;
  std::size_t most_alike_;
  bool is_stopped_ = false;
  StageFamilies families_;
  StageColumns columns_;
  PrefixBound work_;
  std::vector<std::vector<CompletionFunction>>
      kept_;  // by cut, then used devices: none is as good as another
  std::map<std::tuple<std::int32_t, std::int32_t, bool>, StageColumn> least_columns_;
  std::vector<std::int32_t> free_families_;  // by use, once known
  // By cut, free devices, and the taking behind, or only its replicas where that is all that
  // counts.
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::vector<CompletionFunction>>
      choices_;
  std::int64_t front_count_ = 0;
  std::int64_t choice_count_ = 0;
};

/// At least, of all plans that begin with that front and end in a part with that label. Requires:
/// the front includes the boundary between them.
Duration completed(const CompletionFunction& function, const BoundLabel& label);

}  // namespace dapple::search
