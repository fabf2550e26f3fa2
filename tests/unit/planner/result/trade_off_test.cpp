#include "dapple/planner/result/trade_off.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace dapple {
namespace {

using planner::TradeOffLimits;
using planner::TradeOffPoint;

/// A plan that a search covers, found or not.
struct Covered {
  Duration iteration;
  Wide cost = 0;
};

/// Some searches: all the plans that each of them covers, and what it tells of them.
struct Searches {
  std::vector<std::vector<Covered>> covered;
  std::vector<TradeOffPoint> points;
};

Searches random_searches(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t most) { return static_cast<std::int64_t>(random() % most); };
  Searches searches;
  const std::int64_t count = below(6);
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<Covered> covered;
    const std::int64_t plans = below(4);
    for (std::int64_t k = 0; k < plans; ++k) covered.push_back({{1 + below(8)}, 1 + below(8)});
    TradeOffPoint point;
    point.least_iteration = Duration::infinite();
    for (const Covered& plan : covered) {
      point.least_iteration = std::min(point.least_iteration, plan.iteration);
      point.least_cost = point.least_cost == 0 ? plan.cost : std::min(point.least_cost, plan.cost);
    }
    if (!covered.empty()) {
      // A bound need not be tight, and the plan that is found need not be the best.
      point.least_iteration.ns -= std::min(point.least_iteration.ns, below(2));
      point.least_cost -= std::min<Wide>(point.least_cost, below(2));
      if (below(4) > 0) {
        const Covered& found = covered[static_cast<std::size_t>(below(covered.size()))];
        point.iteration = found.iteration;
        point.cost = found.cost;
      }
    }
    searches.covered.push_back(std::move(covered));
    searches.points.push_back(point);
  }
  return searches;
}

bool is_within(const Covered& plan, const TradeOffLimits& limits) {
  return plan.iteration <= limits.iteration.value_or(Duration::infinite()) &&
         (!limits.cost || plan.cost <= *limits.cost);
}

TEST_CASE("the front has the plans that no other beats, and of equal ones the first") {
  std::mt19937_64 random(11);
  for (int i = 0; i < 3000; ++i) {
    const std::vector<TradeOffPoint> points = random_searches(random).points;
    const std::vector<bool> front = planner::pareto_front(points);
    REQUIRE(front.size() == points.size());
    for (std::size_t a = 0; a < points.size(); ++a) {
      bool is_beaten = !points[a].iteration.has_value();
      for (std::size_t b = 0; b < points.size(); ++b) {
        if (is_beaten || b == a || !points[b].iteration) continue;
        const bool is_as_good =
            *points[b].iteration <= *points[a].iteration && points[b].cost <= points[a].cost;
        const bool is_better =
            *points[b].iteration < *points[a].iteration || points[b].cost < points[a].cost;
        is_beaten = is_as_good && (is_better || b < a);
      }
      CHECK(front[a] == !is_beaten);
    }
  }
}

TEST_CASE("the best plan within limits is chosen, and no covered plan is below the bound") {
  std::mt19937_64 random(12);
  int chosen_ones = 0;
  int bounds = 0;
  for (int i = 0; i < 3000; ++i) {
    const Searches searches = random_searches(random);
    TradeOffLimits limits;
    if (random() % 2 == 0) limits.iteration = Duration{static_cast<std::int64_t>(random() % 9)};
    if (random() % 2 == 0) limits.cost = Wide{static_cast<std::int64_t>(random() % 9)};
    for (const Objective objective : {Objective::Time, Objective::Cost}) {
      const auto value = [&](const Covered& plan) {
        return objective == Objective::Time ? Wide{plan.iteration.ns} : plan.cost;
      };
      const auto chosen = planner::best_within(searches.points, limits, objective);
      const auto bound = planner::bound_within(searches.points, limits, objective);
      bool is_any_found = false;
      for (const TradeOffPoint& point : searches.points) {
        if (!point.iteration || !is_within({*point.iteration, point.cost}, limits)) continue;
        is_any_found = true;
        REQUIRE(chosen);
        const TradeOffPoint& best = searches.points[*chosen];
        CHECK(value({*best.iteration, best.cost}) <= value({*point.iteration, point.cost}));
      }
      CHECK(chosen.has_value() == is_any_found);
      chosen_ones += is_any_found;
      for (const std::vector<Covered>& covered : searches.covered) {
        for (const Covered& plan : covered) {
          if (!is_within(plan, limits)) continue;
          REQUIRE(bound);
          CHECK(*bound <= value(plan));
          ++bounds;
        }
      }
    }
  }
  CHECK(chosen_ones > 1000);
  CHECK(bounds > 3000);
}

TEST_CASE("a search that may have plans within the limits bounds them, and others do not") {
  const TradeOffPoint fast{
      .iteration = Duration{10}, .cost = 50, .least_iteration = {9}, .least_cost = 45};
  const TradeOffPoint cheap{
      .iteration = Duration{40}, .cost = 20, .least_iteration = {38}, .least_cost = 19};
  const TradeOffPoint none{.least_iteration = Duration::infinite()};
  const std::vector<TradeOffPoint> points{fast, cheap, none};
  CHECK(planner::bound_within(points, {}, Objective::Cost) == Wide{19});
  CHECK(planner::bound_within(points, {.iteration = Duration{37}}, Objective::Cost) == Wide{45});
  CHECK(planner::bound_within(points, {.cost = 44}, Objective::Time) == Wide{38});
  CHECK_FALSE(planner::bound_within(points, {.iteration = Duration{8}}, Objective::Time));
  CHECK(planner::best_within(points, {.iteration = Duration{37}}, Objective::Cost) == 0U);
  CHECK(planner::best_within(points, {}, Objective::Cost) == 1U);
  CHECK_FALSE(planner::best_within(points, {.cost = 19}, Objective::Cost));
}

TEST_CASE("limits are by throughput, budget and slack, each to the nanosecond") {
  const std::vector<TradeOffPoint> points{
      {.iteration = Duration{1'000}}, {}, {.iteration = Duration{900}}};
  CHECK_FALSE(planner::limits_of({}, points, 8).iteration);
  CHECK(planner::limits_of({.slack = Factor{kOne.billionths / 100}}, points, 8).iteration ==
        Duration{909});
  // 8 samples at 7 a second take 1,142,857,142.86 ns.
  const TradeOffRequest rate{.min_throughput = Factor{7 * kOne.billionths}};
  CHECK(planner::limits_of(rate, points, 8).iteration == Duration{1'142'857'142});
  const TradeOffRequest both{.min_throughput = Factor{7 * kOne.billionths}, .slack = Factor{0}};
  CHECK(planner::limits_of(both, points, 8).iteration == Duration{900});
  CHECK_FALSE(planner::limits_of({.slack = Factor{0}}, {TradeOffPoint{}}, 8).iteration);
  // A thousand iterations of an hour at 2 an hour each cost 2,000.
  const Wide cost = Wide{2} * kOne.billionths * 3'600 * kOne.billionths;
  CHECK(planner::price_of_thousand(cost) == 2'000);
  CHECK(planner::limits_of({.budget = Factor{2'000 * kOne.billionths}}, points, 8).cost == cost);
}

TEST_CASE(
    "what is proven of the least memory is the largest limit with no plan that is fast enough") {
  const std::vector<TradeOffPoint> points{
      {.iteration = Duration{10}, .least_iteration = {10}, .memory_limit = Bytes{100}},
      {.iteration = Duration{12}, .least_iteration = {11}, .memory_limit = Bytes{80}},
      {.iteration = Duration{15}, .least_iteration = {14}, .memory_limit = Bytes{60}},
      {.least_iteration = Duration::infinite(), .memory_limit = Bytes{40}}};
  const TradeOffRequest memory{.against = Against::Memory};
  CHECK(planner::claim_of(memory, points, {.iteration = Duration{9}}).memory == Bytes{100});
  CHECK(planner::claim_of(memory, points, {.iteration = Duration{12}}).memory == Bytes{60});
  CHECK(planner::claim_of(memory, points, {}).memory == Bytes{40});
  const TradeOffRequest time{.against = Against::Memory, .objective = Objective::Time};
  CHECK(planner::claim_of(time, points, {}) == TradeOffClaim{.iteration = Duration{10}});
  CHECK(planner::claim_of(time, points, {.iteration = Duration{9}}) == TradeOffClaim{});
}

}  // namespace
}  // namespace dapple
