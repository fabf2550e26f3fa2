// Searches the order of a plan's computations in a family whose orders depend on costs.
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
  // A plan of the family, with its stages and gradient buckets; its depths and order are not used.
  const Plan& plan;
  // A plan of the same stages under its own schedule, or null.
  const Plan* known = nullptr;
  const CostModel& costs;
  const Reschedule& options;
  // Used in place of the options' own; if empty, the search never stops early.
  std::function<bool()> should_stop;
};

struct SearchedOrder {
  std::vector<std::vector<Action>> order;
  Duration iteration;
  // Lower bound on the iteration of every order.
  Duration lower_bound;
  OrderEffort effort;
};

/// Returns the order with the shortest simulated iteration among those tried: that of the known
/// plan, as it is and with its backwards in two parts, where it fits into memory and the family's
/// own limit; and those of search_order() in schedule_search. Returns nothing if no order fits,
/// which is the case if one micro-batch after the other does not, as it needs the least memory; an
/// order that fits has room for all that it holds. Requires: replicas split every micro-batch.
std::optional<SearchedOrder> search_order(const OrderQuestion& question);

/// Returns a lower bound on the iteration of every order of the plan's family and stages, by the
/// bound on orders of schedule_search; nothing where no order fits into memory. The plan's depths
/// and order are not used. O(stages^2 * micro-batches), about thirty times that where goals are
/// refuted. Requires: the same as search_order().
std::optional<Duration> bound_of_orders(const Plan& plan, const CostModel& costs,
                                        SimulationMode mode);

/// Returns the number of tasks of an order: the forward and the backward of every micro-batch on
/// each stage, the backward in two parts where the family may split it.
std::int64_t count_tasks(ScheduleFamily family, std::int64_t stages,
                         std::int64_t num_micro_batches);

/// Returns the default number of orders to try: 20,000, or fewer where an order has many tasks.
std::int64_t usual_orders(ScheduleFamily family, std::int64_t stages, std::int64_t devices,
                          std::int64_t num_micro_batches);

/// Returns the plan with depths of one and the order that needs the least memory: one micro-batch
/// after the other, with backwards in two parts where its family may split them.
Plan one_by_one(Plan plan);

}  // namespace dapple::planner
