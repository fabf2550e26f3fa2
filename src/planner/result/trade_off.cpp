#include "dapple/planner/result/trade_off.h"

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/topology/memory_limit.h"

namespace dapple::planner {
namespace {

/// An hour in nanoseconds over 1,000 iterations.
constexpr Wide kHourOfIterations = Wide{3600} * 1'000'000;

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

const DeviceKind& kind_in(const TopologyDescription& topology, const std::string& name) {
  const auto kind = std::find_if(topology.devices.begin(), topology.devices.end(),
                                 [&](const DeviceKind& some) { return some.name == name; });
  check(kind != topology.devices.end(), "a server has devices of no kind");
  return *kind;
}

/// Returns the largest limit of memory within which it is proven that no plan is fast enough (W2).
std::optional<Bytes> too_little_memory(const std::vector<TradeOffPoint>& points, Duration most) {
  std::optional<Bytes> limit;
  for (const TradeOffPoint& point : points) {
    if (point.least_iteration <= most) continue;
    limit = std::max(limit.value_or(point.memory_limit), point.memory_limit);
  }
  return limit;
}

}  // namespace

bool has_prices(const TopologyDescription& topology) {
  return std::any_of(topology.servers.begin(), topology.servers.end(),
                     [&](const ServerGroup& group) {
                       return kind_in(topology, group.device).price_per_hour.has_value();
                     });
}

Wide price_per_hour(const TopologyDescription& topology, const std::string& source_name) {
  Wide sum = 0;
  const bool are_priced = has_prices(topology);
  for (const ServerGroup& group : topology.servers) {
    const DeviceKind& kind = kind_in(topology, group.device);
    if (are_priced && !kind.price_per_hour) {
      throw Error{ErrorKind::BadInput,
                  source_name,
                  {{"/devices/" + kind.name + "/price_per_hour",
                    "expected a price, as other devices have one, got none"}}};
    }
    const Factor price = are_priced ? *kind.price_per_hour : kOne;
    sum += Wide{price.billionths} * group.count * group.devices;
  }
  return sum;
}

double price_of_thousand(Wide cost) {
  return static_cast<double>(cost) / static_cast<double>(kHourOfIterations * kOne.billionths);
}

TradeOffPoint point_of(const TradeOffSearch& search, Against against,
                       const std::string& source_name) {
  const Wide price =
      against == Against::Price ? price_per_hour(search.searched_topology(), source_name) : Wide{0};
  TradeOffPoint point{.least_iteration = search.lower_bound,
                      .memory_limit = memory_limit_of(search.searched_topology())};
  if (search.document) {
    const Prediction& prediction = search.document->prediction;
    point.iteration = prediction.iteration;
    point.least_iteration = prediction.lower_bound.value_or(Duration{});
    point.cost = against == Against::Price ? price * prediction.iteration.ns
                                           : Wide{prediction.most_memory().count};
  }
  if (!point.least_iteration.is_infinite()) point.least_cost = price * point.least_iteration.ns;
  return point;
}

TradeOffLimits limits_of(const TradeOffRequest& request, const std::vector<TradeOffPoint>& points,
                         std::int64_t global_batch_size) {
  TradeOffLimits limits;
  if (request.budget) limits.cost = Wide{request.budget->billionths} * kHourOfIterations;
  const auto lower = [&](Wide nanoseconds) {
    const Wide most = std::min<Wide>(nanoseconds, kMaxCount);
    const Duration time{static_cast<std::int64_t>(most)};
    limits.iteration = std::min(limits.iteration.value_or(time), time);
  };
  if (request.min_throughput) {
    // Samples over samples per second, both exact.
    lower(Wide{global_batch_size} * kOne.billionths * kOne.billionths /
          request.min_throughput->billionths);
  }
  Duration fastest = Duration::infinite();
  for (const TradeOffPoint& point : points) {
    fastest = std::min(fastest, point.iteration.value_or(fastest));
  }
  if (request.slack && !fastest.is_infinite()) {
    lower(Wide{fastest.ns} * (kOne.billionths + request.slack->billionths) / kOne.billionths);
  }
  return limits;
}

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

TradeOffClaim claim_of(const TradeOffRequest& request, const std::vector<TradeOffPoint>& points,
                       const TradeOffLimits& limits) {
  if (request.against == Against::Memory && request.objective == Objective::Cost) {
    const Duration most = limits.iteration.value_or(Duration{kMaxCount});
    return {.memory = too_little_memory(points, most)};
  }
  const std::optional<Wide> bound = bound_within(points, limits, request.objective);
  if (!bound) return {};
  if (request.objective == Objective::Cost) return {.price = price_of_thousand(*bound)};
  return {.iteration = Duration{static_cast<std::int64_t>(*bound)}};
}

}  // namespace dapple::planner
