// The plans that a search has simulated and that others may be chosen from: the fastest few of each
// schedule family, which differ in more than depths and devices.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/planner/candidates/score.h"

namespace dapple::planner {

/// Whether two plans have the same layers, number of devices, shares and recomputation in every
/// stage, and the same micro-batches and gradient buckets. Their depths and devices may differ.
/// O(stages).
bool have_same_shape(const Plan& a, const Plan& b);

class PlanPool {
 public:
  /// The number of plans kept of each family.
  static constexpr std::size_t kMost = 32;

  /// Keeps the plan if it is one of the best of its family, in place of a worse one of the same
  /// shape, of equals the first: which devices have a shape makes no plan vary less, but by the
  /// luck of a draw. Infeasible ones are left out. O(kMost * stages).
  void take(const SimulatedPlan& simulated);

  /// Returns the kept plans of a family, best first.
  std::vector<SimulatedPlan> plans_of(ScheduleFamily family) const;

 private:
  std::map<ScheduleFamily, std::vector<SimulatedPlan>> plans_;
};

/// Keeps the plans of a score in the pool, unless that is null.
void keep_in(PlanPool* pool, const Score& score);

}  // namespace dapple::planner
