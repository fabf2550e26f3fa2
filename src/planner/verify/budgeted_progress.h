// A budget for a search that verification repeats.
#pragma once

#include <cstdint>

#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

/// Ends a repeated search once it has exceeded the budget of verification, or `whole` says stop.
class BudgetedProgress : public Progress {
 public:
  /// The budget is in states of the search; a simulation counts as `states_of_simulation`.
  BudgetedProgress(std::int64_t budget, std::int64_t states_of_simulation, Progress* whole)
      : budget_(budget), states_of_simulation_(states_of_simulation), whole_(whole) {}
  void update(const SearchProgress& progress) override {
    // Each part of a search counts from zero again.
    const std::int64_t work = progress.states + progress.simulated * states_of_simulation_;
    if (work < last_) before_ += last_;
    last_ = work;
    if (!is_stopped_ && before_ + last_ > budget_) is_spent_ = true;
  }
  bool should_stop() override {
    if (!has_ended() && whole_ != nullptr && whole_->should_stop()) is_stopped_ = true;
    return has_ended();
  }
  bool has_ended() const { return is_spent_ || is_stopped_; }
  // The states and simulations so far.
  std::int64_t work() const { return before_ + last_; }
  // Whether the search was stopped before the budget was spent.
  bool is_stopped() const { return is_stopped_; }

 private:
  std::int64_t budget_;
  std::int64_t states_of_simulation_;
  Progress* whole_;
  std::int64_t before_ = 0;
  std::int64_t last_ = 0;
  bool is_spent_ = false;
  bool is_stopped_ = false;
};

}  // namespace dapple::planner
