// Completion functions: what the stages in front of a cut add to the part behind it. The equations
// are (C1) to (C6) of docs/bounds.md.
//
// Source: the recursion of bound.h, evaluated from the first stage to the last. Its result is the
// maximum of terms that are each linear in one component of the label behind the cut; a completion
// function keeps their coefficients. Departure: of the terms that multiply the round trip only one
// is kept, and of those from the stages' orders (order_bound.h) only one as well.
#pragma once

#include <cstdint>

#include "dapple/search/bounds/bound.h"
#include "dapple/search/indices.h"

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
/// | last_deals | last_stage | 1        | for (C3) and (C6)         | (C2)            |
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
  std::int32_t tail_parts = 0;
  // Whether the last stage deals its micro-batches.
  bool last_deals = false;
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
  static constexpr std::int32_t kTailParts = std::int32_t{1} << 20;

  /// Lower bound from the depth trade-off (C4), for that tail behind the cut.
  Duration crossed(Duration tail) const {
    if (tail_parts == 0) return crossing;
    return crossing + Duration{divide_down(Wide{tail.ns} * tail_parts, kTailParts)};
  }
};

/// Lower bound on all plans that consist of the stages of `function` and a part behind them with
/// that label (C1).
/// Requires: the function includes the boundary between them.
Duration completed(const CompletionFunction& function, const BoundLabel& label);

/// How a stage divides the micro-batches.
struct StageWork {
  // Those of its busiest replica.
  std::int64_t num_micro_batches = 1;
  // The lanes to which they are dealt in turn.
  std::int64_t lanes = 1;
  // Whether the trade-off of the stage's depth (C4) is left out, for functions that are merged:
  // these have none in common.
  bool is_for_merging = false;
};

/// Returns the function with one more stage behind (C2). `last_stage` and `begin` of the result are
/// those of no stage.
/// Requires: the function includes the boundary to the stage; the function of no stages is all
/// zero.
CompletionFunction with_stage(const CompletionFunction& function, const StageBound& stage,
                              const StageWork& work);

/// Returns the function with a boundary behind its last stage (C3): a function of the label in
/// front of the boundary becomes one of the label behind it.
CompletionFunction with_boundary(const CompletionFunction& function, const BoundaryBound& boundary);

/// Whether `a` dominates `b` (C6): no coefficient of `a` is larger.
bool dominates(const CompletionFunction& a, const CompletionFunction& b);

/// Returns a function that dominates both (C6).
CompletionFunction componentwise_minimum(const CompletionFunction& a, const CompletionFunction& b);

}  // namespace dapple::search
