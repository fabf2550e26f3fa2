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
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/search/indices.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/search/search_problem.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/transfer_shape.h"
#include "search/exact/allocation_classes.h"
#include "search/exact/stage_column_cache.h"
#include "search/table_count.h"

namespace dapple::search {

/// The stages in front of a cut, as a function from the label behind the cut to a lower bound on
/// the plan's time (C1): the largest of the terms below, where RT, V, E and T are the label's.
/// Times are counted from the start of the iteration.
///
/// | member     | symbol     | unit     | term of (C1)              | computed by     |
/// | ---------- | ---------- | -------- | ------------------------- | --------------- |
/// | end        | end        | ns       | end + E                   | (C2), (C3)      |
/// | last       | last       | ns       | last + T                  | (C2), (C3)      |
/// | span       | span       | ns       | span + V                  | (C2), (C3)      |
/// | trip       | trip       | ns       | trip + RT                 | (C2), (C3)      |
/// | steep      | steep      | ns       | steep + waves RT          | (C2), (C3)      |
/// | waves      | waves      | 1        | steep + waves RT          | (C2)            |
/// | own        | own        | ns       | own                       | (C2), (C5)      |
/// | crossing   | crossing   | ns       | crossing + tail_parts T   | (C4), (C3)      |
/// | tail_parts | tail_parts | 1 / 2^20 | crossing + tail_parts T   | (C4)            |
/// | slowest    | slowest    | ns       | for (C4) and (O1) to (O3) | (C2), (C3)      |
/// | sent       | sent       | ns       | for (C5)                  | (C3), then (C2) |
/// | received   | received   | ns       | for (C5)                  | (C3), then (C2) |
/// | last_stage | last_stage | index    | for (C3), (C5) and (C6)   | (C2)            |
/// | begin      | begin      | index    | for (C5)                  | (C2)            |
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

  // The trade-off of a stage's depth between its first backward and its last forward, and the share
  // of the tail that is added, in units of 1 / kTailParts. See order_bound.h.
  Duration crossing;
  std::int64_t tail_parts = 0;
  // The slowest forward of the stages, or transfer of one micro-batch over their boundaries.
  Duration slowest;

  // Where links are shared: `own` is at least `sent` plus the time in which the last stage sends to
  // both neighbours, and at least `received` plus the time in which it receives from both.
  Duration sent;
  Duration received;
  // The class of the last stage's devices.
  AllocationClassIndex last_stage;
  // The beginning of the last stage where (C5) is tracked, otherwise kNoCut.
  CutIndex begin = kNoCut;

  static constexpr CutIndex kNoCut{-1};
  static constexpr std::int64_t kTailParts = std::int64_t{1} << 20;

  /// Lower bound from the depth trade-off (C4), for that tail behind the cut.
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
  /// no bounds could be computed. O(device classes).
  static bool has_room(const CostModel& costs, const PlacementSpace& placements,
                       const Allowance::Limits& limits);

  /// Whether the allowance ended first, so that no bounds are available.
  bool is_stopped() const { return is_stopped_; }

  /// Lower bound on all plans, at most the threshold (C7).
  /// Requires: not stopped.
  Duration least() const { return least_; }

  /// What choices() distinguishes of the partial plan behind a cut.
  struct PartialPlanState {
    CutIndex cut;
    // The devices in use there.
    UseIndex used;
    // The device allocation of its first stage.
    AllocationIndex allocation;
  };
  /// Returns the completion functions of the stages that may stand in front of `state`, including
  /// the boundary between them. O(log choices) once known.
  const std::vector<CompletionFunction>& choices(const PartialPlanState& state);

  /// The number of completion functions kept, over all cuts and choices.
  std::int64_t function_count() const { return function_count_; }
  Bytes kept_bytes() const {
    return allowance_.kept() + choice_count_ * Bytes{sizeof(CompletionFunction)} +
           classes_.kept_bytes();
  }
  std::int64_t work() const { return allowance_.work(); }

 private:
  /// The stages that begin at a cut on devices of one class.
  struct Extension {
    CutIndex cut;
    AllocationClassIndex devices;
    // All devices in use, these included.
    AllocationClassIndex used_after;
    bool recompute = false;
    // The cut if (C5) is tracked for these stages, otherwise kNoCut.
    CutIndex tracked_begin = CompletionFunction::kNoCut;
  };
  /// Counts a step and what is kept. Returns whether the allowance has ended.
  bool must_stop() {
    allowance_.keep(classes_.kept_bytes() - classes_kept_);
    classes_kept_ = classes_.kept_bytes();
    tables_.add_to(allowance_);
    return !allowance_.spend(1);
  }
  void enumerate();
  void extend_state(CutIndex cut, AllocationClassIndex used);
  std::vector<CompletionFunction> functions_before(CutIndex cut, AllocationClassIndex used,
                                                   AllocationClassIndex devices);
  void append_stages(const std::vector<CompletionFunction>& functions, const Extension& extension);
  void append_stage(const CompletionFunction& function, const StageBound& stage,
                    const Extension& extension, CutIndex end);
  CompletionFunction append_boundary(const CompletionFunction& function,
                                     const BoundaryLowerBound& boundary, CutIndex cut) const;
  bool is_heavy(CutIndex cut, AllocationClassIndex devices) const;
  void leave_idle(CutIndex cut);
  AllocationClassIndex free_class(UseIndex used);
  double capacity(AllocationClassIndex devices) const;
  const StageColumn& column(CutIndex end, AllocationClassIndex devices, bool recompute);

  const CostModel& costs_;
  PlacementSpace& placements_;
  const SearchProblem& problem_;
  std::int64_t micro_batches_;
  CutIndex end_of_model_;
  Duration threshold_;
  Allowance allowance_;
  TableCount tables_;
  Bytes classes_kept_;
  Duration least_;
  std::size_t most_alike_;
  bool is_stopped_ = false;
  AllocationClasses classes_;
  StageColumnCache columns_;
  PrefixBound work_;
  // By cut, then devices in use; no function of a list dominates another one.
  IndexedVector<CutIndex, IndexedVector<AllocationClassIndex, std::vector<CompletionFunction>>>
      kept_;
  std::map<std::tuple<CutIndex, AllocationClassIndex, bool>, StageColumn> least_columns_;
  // The class of the devices that a use leaves free; kUnknown until it is asked for.
  IndexedVector<UseIndex, AllocationClassIndex> free_classes_;
  static constexpr AllocationClassIndex kUnknown{-1};
  // By cut, class of the free devices, and the device allocation behind, or only its number of
  // replicas where the space is not complete.
  std::map<std::tuple<CutIndex, AllocationClassIndex, std::int32_t>,
           std::vector<CompletionFunction>>
      choices_;
  std::int64_t function_count_ = 0;
  std::int64_t choice_count_ = 0;
};

/// Lower bound on all plans that consist of the stages of `function` and a part behind them with
/// that label (C1).
/// Requires: the function includes the boundary between them.
Duration completed(const CompletionFunction& function, const BoundLabel& label);

}  // namespace dapple::search
