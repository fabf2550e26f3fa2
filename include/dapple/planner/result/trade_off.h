// Which of several plans to take where a second quantity counts beside time, such as the price of
// an iteration or memory: those that no other plan beats in both, the best one within limits, and
// what is proven of all plans.
//
// Source: Pareto efficiency, as in multi-objective optimization (Ehrgott, Multicriteria
// Optimization, chapter 2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple::planner {

/// The quantity to minimize. The other one decides ties, and after it the order of the searches.
enum class Objective : std::uint8_t { Time, Cost };

/// What one search has found: its plan, and bounds on all plans that it covers. Costs are in a unit
/// of the caller's choice.
struct TradeOffPoint {
  /// The iteration of its plan, and what that costs; nothing if no plan was found.
  std::optional<Duration> iteration = {};
  Wide cost = 0;
  /// Lower bounds on the iteration and on the cost of every plan; infinite if there is none.
  Duration least_iteration = {};
  Wide least_cost = 0;
};

/// What a plan may take at most; nothing for no limit.
struct TradeOffLimits {
  std::optional<Duration> iteration = {};
  std::optional<Wide> cost = {};
};

/// Returns, for each point, whether it has a plan than which no other plan is better in one
/// quantity and at least as good in the other. Of equal plans the first counts. O(points^2).
std::vector<bool> pareto_front(const std::vector<TradeOffPoint>& points);

/// Returns the point with the best plan within the limits, or nothing if there is none. O(points).
std::optional<std::size_t> best_within(const std::vector<TradeOffPoint>& points,
                                       const TradeOffLimits& limits, Objective objective);

/// Returns a lower bound on the objective (nanoseconds, or the unit of costs) of every plan within
/// the limits that any of the searches covers; nothing if there is no such plan. It is the least of
/// the bounds of the searches that may have such plans (docs/bounds.md, (W1)). O(points).
std::optional<Wide> bound_within(const std::vector<TradeOffPoint>& points,
                                 const TradeOffLimits& limits, Objective objective);

}  // namespace dapple::planner
