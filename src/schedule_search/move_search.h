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

#include "randomness.h"
#include "working_order.h"

namespace dapple {

class MoveSearch {
 public:
  MoveSearch(const TaskGraph& graph, const Words& words, std::size_t memory, std::uint64_t seed);

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

  const TaskGraph& graph_;
  WorkingOrder order_;
  std::vector<OrderValue> past_;  // of the last attempts, in a ring
  std::size_t turn_ = 0;
  Randomness randomness_;
  std::vector<TaskPlace> critical_;  // of the order as it is; empty: to be found
  OrderValue best_;
  Words best_words_;
  std::int64_t steps_since_best_ = 0;
};

}  // namespace dapple
