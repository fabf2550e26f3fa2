// Branch and bound over all warm-up depths of one candidate. A node is a box, a product of ranges
// of depths: the box with the least lower bound is split, a box with a single depth vector is
// simulated, and boxes that do not fit into memory are dropped. A lower bound on all open boxes is
// known at any moment, so the search can be suspended and resumed.
//
// Where links are shared and splits do not raise the bound, a box is also simulated at its least
// depths: until some stage has run all forwards that precede its first backward at every depth of
// its range, events are identical at all depths of the box, contention included, and whatever has
// not started by then starts later.
#pragma once

#include <cstdint>
#include <queue>

#include "dapple/planner/candidates/depths.h"
#include "dapple/planner/candidates/score.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/bounds/earliest_start_bound.h"

namespace dapple::planner {

/// Steps of search::EarliestStartBound that take as long as one simulated action.
inline constexpr std::int64_t kStepsPerAction = 10;

class DepthSearch {
 public:
  /// Starts from the candidate's plan, without depths, and the position of the candidate in
  /// `start.order`. `costs` is not kept; the profile, the topology and the options must outlive the
  /// search. Once `should_stop` returns true, advance() pauses.
  DepthSearch(const SimulatedPlan& start, const CostModel& costs, const PlannerOptions& options,
              std::function<bool()> should_stop = {});

  /// The limits at which advance() pauses.
  struct SearchBudget {
    /// Pause once the bound is no lower than this.
    Duration enough;
    /// Pause after so many simulated actions; bounding a box counts as a part of a simulation.
    std::int64_t actions = 0;
  };
  /// Continues the search. Plans with an iteration of `threshold` or longer are of no interest. The
  /// bound of the score covers all depths that were not simulated; the score is settled if none of
  /// them is faster than its best plan, or than the threshold where it has none.
  Score advance(Duration threshold, const SearchBudget& budget);

 private:
  struct OpenBox {
    Duration bound;
    std::int64_t number = 0;
    search::DepthBox box;
    // The number of splits since the bound last rose.
    std::int32_t splits = 0;

    // Among equal bounds the box pushed last comes first, as it is the smallest.
    friend bool operator<(const OpenBox& a, const OpenBox& b) {
      return a.bound != b.bound ? a.bound > b.bound : a.number < b.number;
    }
  };
  void push(search::DepthBox box, const OpenBox& parent, const SimulatedPlan& best, Score& score);
  void split(const OpenBox& open, const SimulatedPlan& best, Score& score);
  void begin(OpenBox open, SimulatedPlan& best, Score& score);
  bool is_one_plan(const search::DepthBox& box) const;
  void simulate(OpenBox open, SimulatedPlan& best, Score& score);

  const Topology& topology_;
  const PlannerOptions& options_;
  std::function<bool()> should_stop_;
  SimulatedPlan start_;
  PlanCost costs_;
  DepthLimits limits_;
  search::EarliestStartBound earliest_start_bound_;
  std::priority_queue<OpenBox> open_;
  std::int64_t boxes_ = 0;
};

}  // namespace dapple::planner
