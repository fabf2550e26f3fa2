// Depths in decision diagrams: ranges that cover all depths of a stage in front of another one, and
// what the fixed order of 1F1B makes of them ((D2) and (D3) in docs/bounds.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dapple/core/quantity.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/search_problem.h"

namespace dapple::search {

/// All depths K of a stage with least <= K <= most.
struct DepthRange {
  std::int64_t least = 1;
  std::int64_t most = 1;
};

/// The ranges that a diagram distinguishes for one stage.
class DepthRanges {
 public:
  /// Returns the ranges of a last stage. `limit` is its depth_limit, at least 1.
  static DepthRanges of_last_stage(const SearchProblem& problem, std::int64_t limit);
  /// Returns the ranges of a stage in front of one with a depth of `behind` or more. There are none
  /// if the stage cannot hold so many micro-batches.
  static DepthRanges in_front_of(std::int64_t behind, const SearchProblem& problem,
                                 std::int64_t limit);

  const DepthRange* begin() const { return ranges_.data(); }
  const DepthRange* end() const { return ranges_.data() + count_; }

 private:
  /// Each of the smallest depths has a range of its own, as the order depends on them most.
  static constexpr std::size_t kSingleDepths = 4;

  void add(DepthRange range) { ranges_[count_++] = range; }

  std::array<DepthRange, kSingleDepths + 1> ranges_;
  std::size_t count_ = 0;
};

/// The first stage of the partial plan behind a boundary, as (D3) needs it. Both are lower bounds.
struct FirstStage {
  // Forward and backward of one micro-batch.
  Duration both;
  // K.
  std::int64_t depth = 1;
};

/// Lower bound on V of a stage from the order of 1F1B on it and on the next stage, for all depths
/// in the range (D3); zero where the problem is of any order. `behind` is the label of the next
/// stage.
Duration span_of_order(const StageBound& stage, const BoundaryBound& boundary,
                       const FirstStage& next, const BoundLabel& behind,
                       const SearchProblem& problem, const DepthRange& depths);

}  // namespace dapple::search
