// Whether what a plan file claims is true: its figures, and the bound that it states. The bound is
// derived anew by plain enumeration, which shares with the search only the costs, the simulation
// and the bound of a given partial plan, so a mistake in the search's pruning is found.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/plan/plan.h"
#include "dapple/planner/planner.h"
#include "dapple/topology/topology.h"

namespace dapple {

enum class BoundCheck {
  NotStated,    // the file states no bound
  NotComplete,  // parts of the space were left out, and only the search knows which
  TooLarge,     // given up, or stopped
  Holds,        // no plan of the whole space is faster
  HoldsOf1F1B,  // no plan under 1F1B or GPipe is; the other families' bounds were not derived
  Refuted,      // a plan is faster: one of the violations
};

struct Verification {
  std::vector<Violation> violations;  // claims that are false, by their places
  BoundCheck bound = BoundCheck::NotStated;
  std::int64_t partial_plans = 0;  // that were costed to derive the bound
  std::int64_t simulated = 0;      // whole plans, at one vector of depths each
};

/// Partial plans costed, or simulations that take as long, before the bound is given up as too
/// large to derive.
inline constexpr std::int64_t kVerificationBudget = 2'000'000;

/// Simulates the plan anew with the file's contention and compares every predicted figure; checks
/// gap, completeness, baselines and schedule families against each other (the plans of baselines
/// and families are not there); and, for a search that left nothing out, tries every stage
/// boundary, device set, micro-batch size and recomputation from the last stage on, dropping a
/// partial plan only where no plan that ends with it can be faster than the stated bound, and
/// simulates what is left at all depths; buckets are of the plan's size, whatever others were
/// searched. Where several schedule families were looked at, that is done for 1F1B alone. Devices
/// that nothing tells apart are tried once: those of one switched server beside the same NIC, and
/// the servers of one device in the same group. A plan that does not fit is taken to be one made
/// without memory limits. Exponential, up to `budget` or until `progress` says stop. Requires: no
/// faults of check_plan() but memory.
Verification verify(const PlanDocument& document, const Topology& topology,
                    std::int64_t budget = kVerificationBudget, Progress* progress = nullptr);

}  // namespace dapple
