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
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/trade_off.h"
#include "dapple/topology/description.h"

namespace dapple::planner {

/// What one search has found: its plan, and bounds on all plans that it covers. Against price, a
/// cost is the price of an iteration, in billionths of an hour's price times nanoseconds; against
/// memory, the bytes of the fullest device.
struct TradeOffPoint {
  /// The iteration of its plan, and what that costs; nothing if no plan was found.
  std::optional<Duration> iteration = {};
  Wide cost = 0;
  /// Lower bounds on the iteration and on the cost of every plan; infinite if there is none.
  Duration least_iteration = {};
  Wide least_cost = 0;
  /// The memory that plans may use on a device, the most of any.
  Bytes memory_limit = {};
};

/// What a plan may take at most; nothing for no limit.
struct TradeOffLimits {
  std::optional<Duration> iteration = {};
  std::optional<Wide> cost = {};
};

/// Whether any device of the servers has a price.
bool has_prices(const TopologyDescription& topology);

/// Returns what all devices cost in an hour, in billionths, or the billionfold number of devices if
/// no kind of the topology has a price. Throws Error(BadInput), naming `source_name`, if a kind
/// lacks one that another has.
Wide price_per_hour(const TopologyDescription& topology, const std::string& source_name);

/// Returns what 1,000 iterations cost, each of which has this cost against price.
double price_of_thousand(Wide cost);

/// Returns what a search has found. Throws as price_per_hour() does.
TradeOffPoint point_of(const TradeOffSearch& search, Against against,
                       const std::string& source_name);

/// Returns what the chosen plan may take: by the budget, the least throughput, and the slack beyond
/// the fastest plan that was found. Plans are of `global_batch_size` samples. O(points).
TradeOffLimits limits_of(const TradeOffRequest& request, const std::vector<TradeOffPoint>& points,
                         std::int64_t global_batch_size);

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

/// Returns what is proven of every plan that the searches cover: of the least memory by (W2),
/// otherwise by (W1). O(points).
TradeOffClaim claim_of(const TradeOffRequest& request, const std::vector<TradeOffPoint>& points,
                       const TradeOffLimits& limits);

}  // namespace dapple::planner
