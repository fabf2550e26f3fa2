// The lower bound in two steps, for what needs the second only where the first is not met.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule_search/tasks/heads_and_tails.h"

namespace dapple::schedule_search {

class BoundMaker {
 public:
  explicit BoundMaker(const TaskProblem& problem);

  /// Of every order. O(stages^2 * M + tasks * log tasks).
  std::int64_t simple() const { return at_most(kNever); }

  /// The least goal that is not refuted by the bound for orders that meet it: never below
  /// simple(). That bound some thirty times.
  std::int64_t refined() const;

 private:
  /// At least, of every order whose objective is at most `goal`. It does not rise with the goal.
  std::int64_t at_most(std::int64_t goal) const;

  TaskGraph graph_;
  std::vector<MemoryNeeds> needs_;
  bool is_span_;
};

}  // namespace dapple::schedule_search
