// Completion bounds: lower bounds on what the stages in front of a cut add to the part behind it,
// wherever they are placed. They close nodes of the exact search. The equations are (C1)-(C7) of
// docs/bounds.md.
//
// Source: the recursion of bound.h, evaluated from the first stage to the last. Its result is the
// maximum of terms that are each linear in one component of the label behind the cut; a completion
// function keeps their coefficients. Departure: of the terms that multiply the round trip only one
// is kept, and of those from the stages' orders (order_bound.h) only one as well.
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

/// The stages in front of a cut, as a function from the label (RT, V, E, tail) of the part behind
/// the cut to a lower bound on the plan's time (C1). The plan takes at least each of end + E,
/// last + tail, span + V, trip + RT, waves * RT + steep, own, and crossing plus the tail times
/// tail_parts / kTailParts.
struct CompletionFunction {
  // The earliest start of the first forward behind the cut.
  Duration end;
  // The earliest start of the last forward behind the cut.
  Duration last;
  // `end`, plus the time from the last backward behind the cut to the end of the iteration.
  Duration span;
  // Terms that count the round trip behind the cut once, or `waves` times.
  Duration trip;
  Duration steep;
  std::int64_t waves = 0;
  // A bound that does not depend on the label behind.
  Duration own;

  // The trade-off of a stage's depth between its first backward and its last forward (C4), and the
  // share of the tail that is added, in units of 1 / kTailParts. See order_bound.h.
  Duration crossing;
  std::int64_t tail_parts = 0;
  // The slowest forward of the stages, or transfer of one micro-batch over their boundaries.
  Duration slowest;

  // Where links are shared: `own` is at least `sent` plus the time in which the last stage sends to
  // both neighbours, and at least `received` plus the time in which it receives from both (C5).
  Duration sent;
  Duration received;
  // Device counts of the last stage, as numbered by StageFamilies.
  std::int32_t families = 0;
  // First layer of the last stage where (C5) is tracked, otherwise kNone.
  std::int32_t begin = kNone;

  static constexpr std::int32_t kNone = -1;
  static constexpr std::int64_t kTailParts = std::int64_t{1} << 20;

  /// Lower bound from the depth trade-off, for that tail behind the cut.
  Duration crossed(Duration tail) const {
    return crossing + Duration{divide_down(Wide{tail.ns} * tail_parts, kTailParts)};
  }
};

/// The completion functions of all cuts, and the lower bound on all plans that follows from them.
class CompletionBounds {
 public:
  /// Computes the completion functions of all cuts. Bounds of `threshold` or more are not
  /// distinguished from each other. At most O(layers^2 * devices^2) times the number of
  /// non-dominated functions of a cut, and far less with a good threshold. If the allowance ends
  /// first, no bounds are available.
  CompletionBounds(const CostModel& costs, PlacementSpace& placements, const SearchProblem& problem,
                   Duration threshold, const Allowance::Limits& limits);

  /// Whether the limits leave room for what is kept even without any completion function. If not,
  /// no bounds could be computed. O(families of devices).
  static bool has_room(const CostModel& costs, const PlacementSpace& placements,
                       const Allowance::Limits& limits);

  /// Whether the allowance ended first, so that no bounds are available.
  bool is_stopped() const { return is_stopped_; }

  /// Lower bound on all plans, at most the threshold (C7).
  /// Requires: not stopped.
  Duration least() const { return least_; }

  /// The part of a plan behind a cut.
  struct Behind {
    std::int32_t cut = 0;
    // The devices in use there, as numbered by the placement space.
    std::int32_t used = 0;
    // The device allocation of its first stage.
    std::int32_t allocation = 0;
  };
  /// Returns the completion functions of the stages that may stand in front of `behind`, including
  /// the boundary between them. O(1) once known.
  const std::vector<CompletionFunction>& choices(const Behind& behind);

  /// The number of completion functions kept, over all cuts and choices.
  std::int64_t function_count() const { return function_count_; }
  Bytes kept_bytes() const {
    return allowance_.kept() + choice_count_ * Bytes{sizeof(CompletionFunction)} +
           families_.kept_bytes();
  }
  std::int64_t work() const { return allowance_.work(); }

 private:
  /// Stages that begin at a cut.
  struct Extension {
    std::int32_t cut = 0;
    // Their device counts per family, and all that are in use including these.
    std::int32_t families = 0;
    std::int32_t after = 0;
    bool recompute = false;
  };
  /// Counts a step and what is kept. Returns whether the allowance has ended.
  bool must_stop() {
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
  // Indexed by cut, then device counts in use; no function of a list dominates another one.
  std::vector<std::vector<CompletionFunction>> kept_;
  std::map<std::tuple<std::int32_t, std::int32_t, bool>, StageColumn> least_columns_;
  // Indexed by the number of the use; -1 until known.
  std::vector<std::int32_t> free_families_;
  // Indexed by cut, free device counts, and the device allocation behind, or only its number of
  // replicas where the space is not complete.
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::vector<CompletionFunction>>
      choices_;
  std::int64_t function_count_ = 0;
  std::int64_t choice_count_ = 0;
};

/// Lower bound on all plans that consist of the stages of `function` and a part behind them with
/// that label (C1).
/// Requires: the function includes the boundary between them.
Duration completed(const CompletionFunction& function, const BoundLabel& label);

}  // namespace dapple::search
