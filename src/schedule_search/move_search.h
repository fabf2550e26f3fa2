// Moves of one or a few tasks in an order, kept where they are no worse than a while ago.
//
// Source: late acceptance hill climbing (Burke and Bykov 2017): a change is kept if it is no worse
// than the order as it was a fixed number of attempts ago. Whole numbers only, no temperature, and
// nothing that depends on how long it will run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "schedule_search/randomness.h"
#include "schedule_search/tasks/working_order.h"

namespace dapple::schedule_search {

/// The objective of an order as it is really counted, which is no less than the problem's own.
/// Asked of orders that have room for what waits.
using Appraisal = std::function<std::int64_t(const Words&)>;

class MoveSearch {
 public:
  struct Start {
    Words words;
    std::size_t memory = 1;  // attempts that late acceptance looks back
    std::uint64_t seed = 1;
  };
  /// Without an appraisal orders count with the problem's own objective. With one, the sum of an
  /// order's value is that objective: it breaks ties.
  MoveSearch(const TaskGraph& graph, const HoldingRules& rules, Start start,
             Appraisal appraise = nullptr);

  /// One move tried; true if the best order has become better.
  bool step();
  const OrderValue& best() const { return best_; }
  const Words& best_words() const { return best_words_; }
  std::int64_t steps_since_best() const { return steps_since_best_; }

 private:
  std::optional<TaskMove> propose();
  std::optional<TaskMove> shift_from(TaskPlace place);
  std::optional<TaskMove> fill_gap(TaskPlace place);
  bool make_some_move();
  OrderValue appraised(OrderValue value) const;

  const TaskGraph& graph_;
  WorkingOrder order_;
  Appraisal appraise_;
  OrderValue value_;              // of the order as it is
  std::vector<OrderValue> past_;  // of the last attempts, in a ring
  std::size_t turn_ = 0;
  Randomness randomness_;
  std::vector<TaskPlace> critical_;  // of the order as it is; empty: to be found
  OrderValue best_;
  Words best_words_;
  std::int64_t steps_since_best_ = 0;
};

}  // namespace dapple::schedule_search
