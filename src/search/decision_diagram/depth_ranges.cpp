#include "search/decision_diagram/depth_ranges.h"

#include <algorithm>

namespace dapple::search {

DepthRanges DepthRanges::of_last_stage(const SearchProblem& problem, std::int64_t limit) {
  DepthRanges ranges;
  const std::int64_t all = problem.num_micro_batches();
  if (problem.gpipe) {
    ranges.add({.least = all, .most = all});
  } else if (problem.any_order) {
    ranges.add({.least = 1, .most = std::min(limit, all)});
  } else {
    // No line of its label depends on its depth, and depths in front are no smaller.
    ranges.add({.least = 1, .most = 1});
  }
  return ranges;
}

/// The ranges of (D2).
DepthRanges DepthRanges::in_front_of(std::int64_t behind, const SearchProblem& problem,
                                     std::int64_t limit) {
  const std::int64_t most = std::min(limit, problem.num_micro_batches());
  if (problem.gpipe || problem.any_order) return of_last_stage(problem, limit);
  DepthRanges ranges;
  if (problem.pins.least_depths) {
    const std::int64_t depth = std::min(behind + 1, problem.num_micro_batches());
    if (depth <= most) ranges.add({.least = depth, .most = depth});
    return ranges;
  }
  std::int64_t depth = behind;
  for (std::size_t i = 0; i < kSingleDepths && depth <= most; ++i, ++depth) {
    ranges.add({.least = depth, .most = depth});
  }
  if (depth <= most) ranges.add({.least = depth, .most = most});
  return ranges;
}

/// Computes (D3), which is (B5a) for the next stage.
Duration span_of_order(const StageBound& stage, const BoundaryBound& boundary,
                       const FirstStage& next, const BoundLabel& behind,
                       const SearchProblem& problem, const DepthRange& depths) {
  if (problem.any_order) return {};
  const std::int64_t all = problem.num_micro_batches();
  const Duration there_and_back =
      stage.forward + boundary.forward + boundary.backward + stage.backward;
  const Duration trip = there_and_back + next.both;
  const Duration round_trip = there_and_back + behind.round_trip;
  if (depths.least < depths.most) {
    // Without the last, incomplete wave this rises with the depth of the next stage and falls with
    // that of this one.
    const std::int64_t waves = (all - next.depth) / (depths.most - next.depth + 1);
    return (next.depth - 1) * stage.forward + waves * trip + round_trip;
  }
  Duration least = Duration::infinite();
  for (std::int64_t next_depth = next.depth; next_depth <= depths.least; ++next_depth) {
    const std::int64_t wave = depths.least - next_depth + 1;
    const std::int64_t waiting = all - next_depth;
    const Duration span = (next_depth - 1) * stage.forward + waiting / wave * trip + round_trip +
                          waiting % wave * std::max(stage.forward, stage.backward);
    least = std::min(least, span);
  }
  return least;
}

}  // namespace dapple::search
