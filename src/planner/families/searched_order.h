// The order of a plan's computations in a family whose orders follow from costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/planner/families/reschedule.h"

namespace dapple::planner {

struct OrderQuestion {
  const Plan& plan;  // of the family, with its stages and gradient buckets; depths and order unused
  const Plan* known = nullptr;  // the same stages under a schedule of their own; nothing: none
  const CostModel& costs;
  const Reschedule& options;
  std::function<bool()> should_stop;  // in place of that of the options; nothing: never
};

struct SearchedOrder {
  std::vector<std::vector<Action>> order;
  Duration iteration;
  Duration lower_bound;  // no order has a shorter iteration
  OrderEffort effort;
};

/// The order with the shortest simulated iteration of those that are looked at: that of the known
/// plan, where it fits memory and the family's own limit, as it is and with its backwards in two
/// parts; and those of search_order() in schedule_search. Nothing if no order fits: what is said
/// to fit has room for everything, and one micro-batch after the other needs the least room.
/// Requires: replicas split every micro-batch.
std::optional<SearchedOrder> search_order(const OrderQuestion& question);

/// Lower bound on the iteration of every order of the plan's family and stages, by the bound on
/// orders of schedule_search. O(stages^2 * micro-batches), some thirty times where goals are
/// refuted. Nothing where no order fits memory. Requires: as search_order(); depths and order are
/// unused.
std::optional<Duration> bound_of_orders(const Plan& plan, const CostModel& costs,
                                        SimulationMode mode);

/// Tasks of an order of the family: each stage's forward and backward of every micro-batch, in as
/// many parts as the family may split them into.
std::int64_t count_tasks(ScheduleFamily family, std::int64_t stages,
                         std::int64_t num_micro_batches);

/// How many orders are tried unless it is said otherwise; fewer where an order has many tasks.
std::int64_t usual_orders(ScheduleFamily family, std::int64_t stages, std::int64_t devices,
                          std::int64_t num_micro_batches);

/// The plan with the order that needs the least memory: one micro-batch after the other, in the
/// parts that its family has. Its depths are filled in.
Plan one_by_one(Plan plan);

}  // namespace dapple::planner
