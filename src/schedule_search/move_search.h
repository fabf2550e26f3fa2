// A local search that moves one or a few tasks in an order.
//
// Source: late acceptance hill climbing (Burke and Bykov 2017): a change is accepted if it is no
// worse than the order was a fixed number of attempts ago. It uses integers only, has no
// temperature, and nothing depends on how long it will run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "schedule_search/randomness.h"
#include "schedule_search/tasks/working_order.h"

namespace dapple::schedule_search {

/// Returns the objective of an order as it is finally evaluated, which is no less than the
/// problem's own. It is called for orders whose boundary buffers fit.
using Appraisal = std::function<std::int64_t(const Words&)>;

class MoveSearch {
 public:
  struct Start {
    Words words;
    // The number of attempts that late acceptance looks back.
    std::size_t memory = 1;
    std::uint64_t seed = 1;
  };
  /// Without an appraisal, orders are evaluated by the problem's own objective. With one, that
  /// objective becomes the `sum` of an order's value, which breaks ties.
  MoveSearch(const TaskGraph& graph, const HoldingRules& rules, Start start,
             Appraisal appraise = nullptr);

  /// Tries one move. Returns whether the best order has improved.
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
  // The value of the current order.
  OrderValue value_;
  // The values of the last attempts, as a ring buffer.
  std::vector<OrderValue> past_;
  std::size_t turn_ = 0;
  RandomSequence random_;
  // The critical tasks of the current order; empty if still to be computed.
  std::vector<TaskPlace> critical_;
  OrderValue best_;
  Words best_words_;
  std::int64_t steps_since_best_ = 0;
};

}  // namespace dapple::schedule_search
