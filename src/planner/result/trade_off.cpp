#include "dapple/planner/result/trade_off.h"

#include <algorithm>
#include <utility>

namespace dapple::planner {
namespace {

/// Whether the plan of `a` is at least as good as that of `b` in both quantities.
bool is_no_worse(const TradeOffPoint& a, const TradeOffPoint& b) {
  return *a.iteration <= *b.iteration && a.cost <= b.cost;
}

bool is_within(Duration iteration, Wide cost, const TradeOffLimits& limits) {
  return (!limits.iteration || iteration <= *limits.iteration) &&
         (!limits.cost || cost <= *limits.cost);
}

/// Returns the objective first, then what decides between equals.
std::pair<Wide, Wide> order_of(Duration iteration, Wide cost, Objective objective) {
  const Wide time = iteration.ns;
  return objective == Objective::Time ? std::pair(time, cost) : std::pair(cost, time);
}

}  // namespace

std::vector<bool> pareto_front(const std::vector<TradeOffPoint>& points) {
  std::vector<bool> front(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!points[i].iteration) continue;
    front[i] = true;
    for (std::size_t k = 0; k < points.size() && front[i]; ++k) {
      if (k == i || !points[k].iteration || !is_no_worse(points[k], points[i])) continue;
      front[i] = k > i && is_no_worse(points[i], points[k]);
    }
  }
  return front;
}

std::optional<std::size_t> best_within(const std::vector<TradeOffPoint>& points,
                                       const TradeOffLimits& limits, Objective objective) {
  std::optional<std::size_t> best;
  const auto order = [&](std::size_t i) {
    return order_of(*points[i].iteration, points[i].cost, objective);
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!points[i].iteration || !is_within(*points[i].iteration, points[i].cost, limits)) continue;
    if (!best || order(i) < order(*best)) best = i;
  }
  return best;
}

std::optional<Wide> bound_within(const std::vector<TradeOffPoint>& points,
                                 const TradeOffLimits& limits, Objective objective) {
  // (W1)
  std::optional<Wide> least;
  for (const TradeOffPoint& point : points) {
    const bool has_plans = !point.least_iteration.is_infinite() &&
                           is_within(point.least_iteration, point.least_cost, limits);
    if (!has_plans) continue;
    const Wide bound = order_of(point.least_iteration, point.least_cost, objective).first;
    least = std::min(least.value_or(bound), bound);
  }
  return least;
}

}  // namespace dapple::planner
