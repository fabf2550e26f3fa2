// All warm-up depths of one candidate, by boxes: the box with the least bound is split, a single
// depth of every stage is simulated, and what memory has no room for is dropped. What is left of
// the candidate is bounded at any moment, so the search can be left and taken up again.
//
// Where links are shared and splitting does not help, a box is simulated too: until the first stage
// comes to the forward that not all its depths have, everything happens alike at all of them,
// contention included, and what has not happened by then happens later.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "dapple/planner/candidates/depths.h"
#include "dapple/planner/candidates/score.h"
#include "dapple/planner/request/planner.h"
#include "dapple/search/bounds/earliest_start_bound.h"

namespace dapple::planner {

class DepthSearch {
 public:
  /// `start`: the candidate's plan, without depths, and its order. `costs` is not kept; profile,
  /// topology and options must outlive it.
  DepthSearch(const SimulatedPlan& start, const CostModel& costs, const PlannerOptions& options);

  struct Stretch {
    Duration to_beat;         // plans from it on are of no interest
    Duration enough;          // the bound need not be higher
    std::int64_t budget = 0;  // simulated actions; a box counts as a part of a simulation
  };
  /// The score's bound is that of all depths that were not simulated; settled if none of them beats
  /// the best, or what was to be beaten.
  Score advance(const Stretch& stretch);

 private:
  struct Open {
    Duration bound;
    std::int64_t number = 0;
    search::DepthBox box;
    std::int32_t splits = 0;  // since the bound last rose

    /// Of equals the latest comes first: it is the smallest.
    friend bool operator<(const Open& a, const Open& b) {
      return a.bound != b.bound ? a.bound > b.bound : a.number < b.number;
    }
  };
  void push(search::DepthBox box, const Open& whole, const SimulatedPlan& best, Score& score);
  void split(const Open& open, const SimulatedPlan& best, Score& score);
  void begin(Open open, SimulatedPlan& best, Score& score);
  void simulate_at(const Depths& depths, SimulatedPlan& best, Score& score) const;

  const Topology& topology_;
  const PlannerOptions& options_;
  SimulatedPlan start_;
  PlanCost costs_;
  DepthLimits limits_;
  search::EarliestStartBound earliest_start_bound_;
  std::priority_queue<Open> open_;
  std::int64_t boxes_ = 0;
};

}  // namespace dapple::planner
