// How fast a candidate is at its best warm-up depths, by simulation.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/costs.h"
#include "dapple/plan/plan.h"
#include "dapple/planner/planner.h"
#include "dapple/search/dapple_search.h"
#include "depths.h"

namespace dapple {

/// A candidate with the best depths found so far; infeasible until it has some.
struct Scored {
  Plan plan;
  Duration iteration{INT64_MAX};
  std::size_t order = 0;  // of its candidate

  bool feasible() const { return iteration.ns != INT64_MAX; }
};

/// Faster first; of equals, fewer devices, fewer stages, the earlier candidate, shallower depths.
bool better(const Scored& a, const Scored& b);

/// The outcome and what it took; actions are those simulated, deterministic unlike time.
struct Score {
  Scored best;
  std::int64_t actions = 0;
  std::int64_t simulated = 0;
};

/// Scores candidates of one problem. Const and without state, so threads may share one.
class Scorer {
 public:
  Scorer(const ModelProfile& profile, const Topology& topology, const PlannerOptions& options)
      : profile_(profile), topology_(topology), options_(options) {}

  /// The best of the depth families that memory allows. Infeasible if none fits or is faster than
  /// `to_beat`.
  Score score(const Candidate& candidate, std::size_t order, Duration to_beat) const;

  /// Steps to a faster neighbour's depths until there is none or `budget` actions are spent.
  Score refine(const Scored& start, std::int64_t budget) const;

 private:
  Plan plan_of(const Candidate& candidate) const;
  void try_depths(const Depths& depths, const CostModel& costs, Scored& current,
                  Score& score) const;

  const ModelProfile& profile_;
  const Topology& topology_;
  const PlannerOptions& options_;
};

}  // namespace dapple
