// The state shared by the parts of an order search: its budget and the best orders so far.
#pragma once

#include <cstdint>
#include <map>

#include "dapple/schedule_search/order_search.h"
#include "schedule_search/list_schedule.h"
#include "schedule_search/tasks/holding_rules.h"
#include "schedule_search/tasks/working_order.h"

namespace dapple::schedule_search {

class OrderSearchState {
 public:
  OrderSearchState(const TaskProblem& problem, const OrderSearchOptions& options);

  const TaskGraph& graph() const { return graph_; }
  const HoldingRules& rules() const { return rules_; }

  void count_list_schedule() { ++work_.list_schedules; }
  void count_move() { ++work_.moves; }

  /// Returns the value of a list schedule, including the excess of its holdings.
  OrderValue value_of(const ListSchedule& schedule) const;

  /// Offers an order with its value by the problem's own objective.
  void offer(const OrderValue& value, const Words& words);

  /// Simulates an order whose boundary buffers fit, or returns the remembered result.
  std::int64_t simulate(const Words& words);
  /// Simulates the best order if orders are to be simulated.
  void simulate_best();

  /// Whether the search is over: an optimal order has been found, the evaluations are used up, or
  /// should_stop returns true; false as long as no order fits.
  bool is_over() const;
  /// Whether should_stop returns true and some order fits.
  bool is_stopped() const;
  /// Whether the best order is optimal by the problem's own objective.
  bool is_met() const { return best_.excess == 0 && best_.worst <= bound_; }
  /// Whether simulation can find a better order: the best simulated length exceeds the best
  /// objective.
  bool wants_simulation() const;

  std::int64_t bound() const { return bound_; }
  void raise_bound(std::int64_t bound) { bound_ = bound; }
  const OrderValue& best() const { return best_; }
  const Words& words() const { return words_; }
  /// Returns the order that is the result; simulated() is its simulated length.
  const Words& chosen() const { return options_.simulate ? simulated_words_ : words_; }
  std::int64_t simulated() const { return simulated_; }
  const OrderSearchOptions& options() const { return options_; }
  const OrderSearchWork& work() const { return work_; }

 private:
  const OrderSearchOptions& options_;
  TaskGraph graph_;
  HoldingRules rules_;
  std::int64_t bound_ = 0;
  OrderValue best_;
  Words words_;
  // The least simulated length, and its order.
  std::int64_t simulated_ = kNever;
  Words simulated_words_;
  // The simulated lengths by order.
  std::map<Words, std::int64_t> remembered_;
  OrderSearchWork work_;
};

}  // namespace dapple::schedule_search
