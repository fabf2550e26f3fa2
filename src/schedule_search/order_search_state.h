// What the parts of an order search share: its budget, and the best orders so far.
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

  /// What a list schedule is worth, with what it holds.
  OrderValue value_of(const ListSchedule& schedule) const;

  /// An order by the problem's own objective.
  void offer(const OrderValue& value, const Words& words);

  /// Simulates an order that has room for what waits, or remembers what it took.
  std::int64_t simulate(const Words& words);
  /// The same of the best order, where orders are to be simulated.
  void simulate_best();

  /// An order has been found that is the best there is, the work is used up, or the caller says
  /// stop; not before there is an order that fits.
  bool is_over() const;
  /// The caller says stop, and there is an order that fits.
  bool is_stopped() const;
  /// By the problem's own objective no better order is possible.
  bool is_met() const { return best_.excess == 0 && best_.worst <= bound_; }
  /// Whether there is something to find by simulation: the best order takes longer than its own
  /// objective.
  bool wants_simulation() const;

  std::int64_t bound() const { return bound_; }
  void raise_bound(std::int64_t bound) { bound_ = bound; }
  const OrderValue& best() const { return best_; }
  const Words& words() const { return words_; }
  /// The order to be returned, and what it takes.
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
  std::int64_t simulated_ = kNever;  // the least
  Words simulated_words_;
  std::map<Words, std::int64_t> remembered_;  // by order, what it took
  OrderSearchWork work_;
};

}  // namespace dapple::schedule_search
