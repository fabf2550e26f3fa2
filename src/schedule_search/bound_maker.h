// The lower bound in two steps, the second of which is only needed if the first is not reached.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule_search/tasks/heads_and_tails.h"

namespace dapple::schedule_search {

class BoundMaker {
 public:
  explicit BoundMaker(const TaskProblem& problem);

  /// Returns a lower bound on every order. O(stages^2 * M + tasks * log tasks).
  std::int64_t simple() const { return at_most(kNever); }

  /// Returns the least goal that is not refuted by the bound on orders that meet it; never below
  /// simple(). It computes that bound about thirty times.
  std::int64_t refined() const;

 private:
  /// Returns a lower bound on every order whose objective is at most `goal`. It does not increase
  /// with the goal.
  std::int64_t at_most(std::int64_t goal) const;

  TaskGraph graph_;
  std::vector<MemoryNeeds> needs_;
  bool is_span_;
};

}  // namespace dapple::schedule_search
