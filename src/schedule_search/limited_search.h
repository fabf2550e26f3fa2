// The search for orders within limits on the number in flight of each stage, in rounds.
#pragma once

#include <cstdint>
#include <optional>

#include "schedule_search/list_schedule.h"
#include "schedule_search/move_search.h"
#include "schedule_search/order_search_state.h"
#include "schedule_search/randomness.h"

namespace dapple::schedule_search {

class LimitedSearch {
 public:
  /// List schedules obey the limits of `problem`, which must not exceed those of the state's own
  /// problem; moves obey the latter.
  LimitedSearch(const TaskProblem& problem, OrderSearchState& state);

  /// Builds list schedules by the rules of the table, with moves in between, until `evaluations`
  /// orders have been tried.
  void try_table(std::int64_t evaluations);
  /// Changes rules and moves tasks, for a number of attempts that increases with `round`.
  void improve(std::int64_t round);
  /// Moves tasks in the best simulated order, and in one far from it, evaluated by simulation.
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

  // The graph with the limits of list schedules.
  TaskGraph graph_;
  OrderSearchState& state_;
  RandomSequence random_;
  // In try_table(), the number of orders with which it ends.
  std::optional<std::int64_t> last_;
  RatedRule best_rule_;
  OrderValue best_;
  Words words_;
};

}  // namespace dapple::schedule_search
