// The search for orders with so many in flight at most on each stage, in rounds.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule_search/list_schedule.h"
#include "schedule_search/move_search.h"
#include "schedule_search/order_search_state.h"
#include "schedule_search/randomness.h"

namespace dapple::schedule_search {

class LimitedSearch {
 public:
  /// List schedules keep to the limits of `problem`, which are nowhere above those of the state's
  /// own; moves keep to those of the latter.
  LimitedSearch(const TaskProblem& problem, OrderSearchState& state);

  /// List schedules by the rules of the table, and moves in between, until so many orders were
  /// tried.
  void try_table(std::int64_t evaluations);
  /// Rules changed, and tasks moved, for a number of attempts that rises with `round`.
  void improve(std::int64_t round);
  /// Tasks moved in the best simulated order, and in one far from it, by simulation.
  void improve_by_simulation(std::int64_t round);

  const OrderValue& best() const { return best_; }

 private:
  struct RatedRule {
    ListRule rule;
    OrderValue value;
  };

  bool is_over() const;
  OrderValue build(const ListRule& rule);
  void offer(const OrderValue& value, const Words& words);
  void move_tasks(const Words& from, std::int64_t stall_limit);
  void simulate_moves(const Words& from, std::int64_t stall_limit);
  Words any_order();
  std::int64_t orders_tried() const { return state_.work().orders(); }

  TaskGraph graph_;  // with the limits of list schedules
  OrderSearchState& state_;
  Randomness randomness_;
  std::int64_t last_ = INT64_MAX;  // orders tried when the table is to be left
  RatedRule best_rule_;
  OrderValue best_;
  Words words_;
};

}  // namespace dapple::schedule_search
