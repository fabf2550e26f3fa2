// How fast a candidate is at its best warm-up depths, by simulation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/costs.h"
#include "dapple/plan/plan.h"
#include "dapple/planner/depth_search.h"
#include "dapple/planner/depths.h"
#include "dapple/planner/planner.h"
#include "dapple/planner/score.h"
#include "dapple/search/dapple_search.h"

namespace dapple {

/// Scores candidates of one problem. Const and without state, so threads may share one.
class Scorer {
 public:
  Scorer(const ModelProfile& profile, const Topology& topology, const PlannerOptions& options)
      : profile_(profile), topology_(topology), options_(options) {}

  /// The best of all legal depths that memory allows where these are few, else of the depth
  /// families. Infeasible if none fits or is faster than `to_beat`. No further depths are tried
  /// once `budget` actions are spent; the candidate is not settled then.
  Score score(const Candidate& candidate, std::size_t order, Duration to_beat,
              std::int64_t budget = INT64_MAX) const;

  /// The best of the depth families, whatever is to be beaten, then steps from there.
  Score improve(const Candidate& candidate, std::size_t order, std::int64_t budget) const;

  /// All its depths, yet to be gone through.
  std::unique_ptr<DepthSearch> depths_of(const Candidate& candidate, std::size_t order) const;

  /// Steps to a faster neighbour's depths until there is none or `budget` actions are spent.
  Score refine(const Scored& start, std::int64_t budget) const;

  /// The same by changes that may at first make it slower.
  Score walk(const Scored& start, std::int64_t budget) const;

 private:
  Plan plan_of(const Candidate& candidate) const;
  bool has_free_depths() const {
    return options_.family != ScheduleFamily::GPipe && !options_.pins.least_depths;
  }
  Duration bound_of(const Plan& plan, const PlanCost& cost) const;
  std::vector<Depths> depths_to_try(const Plan& plan, const PlanCost& costs, Duration bound,
                                    bool& are_all) const;
  void try_depths(const Depths& depths, const CostModel& costs, Scored& current,
                  Score& score) const;

  const ModelProfile& profile_;
  const Topology& topology_;
  const PlannerOptions& options_;
};

}  // namespace dapple
