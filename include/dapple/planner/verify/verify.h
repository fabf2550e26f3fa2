// Whether what a plan file claims is true: its figures, what it says of the search, and the bound
// that it states. What was asked stands in the file, so that everything but the search's own work
// is made anew from it. The bound is derived by means that share with the search only the costs,
// the simulation and the bound of a given partial plan, so a mistake in the search's pruning is
// found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/plan/document.h"
#include "dapple/planner/request/planner.h"
#include "dapple/planner/request/restricted.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

enum class BoundCheck {
  NotStated,  // the file states no bound
  Proven,     // no plan that was asked for is below the bound that it states
  NotProven,  // some may be, though none is below `proven`
  Refuted,    // a plan is faster: one of the violations
};

/// What a bound was derived anew from.
enum class BoundProof {
  LeastWork,   // the work that every plan has to do
  Orders,      // of a rescheduled plan: heads and tails of the tasks, in whatever order
  Exhaustion,  // all plans that might be faster were gone through
};

struct PlanVerification {
  std::vector<Violation> violations;  // claims that are false, by their places
  BoundCheck bound = BoundCheck::NotStated;
  Duration proven;  // no plan that was asked for takes less, as derived anew
  BoundProof proof = BoundProof::LeastWork;
  /// What else was neither confirmed nor refuted, and why, in words.
  std::vector<std::string> unchecked;
  bool is_stopped = false;         // `progress` said stop before the budget was spent
  std::int64_t partial_plans = 0;  // that were costed to derive the bound
  std::int64_t simulated = 0;      // whole plans, at one vector of depths each

  /// Nothing is false, and nothing is left to be believed.
  bool is_whole() const {
    return violations.empty() && unchecked.empty() &&
           (bound == BoundCheck::NotStated || bound == BoundCheck::Proven);
  }
};

/// Partial plans costed, or simulations that take as long, before the bound is given up as too
/// large to derive: a second or two.
inline constexpr std::int64_t kVerificationBudget = 50'000;

struct VerifyOptions {
  std::optional<PlanRestriction> restriction = {};  // of the target that was asked for, if one was
  /// For all that is tried to derive the bound; as much again for repeating a search.
  std::int64_t budget = kVerificationBudget;
};

/// In this order, up to the first step that finds something false:
///
/// 1. Simulates the plan anew with the file's contention and compares every predicted figure, and
///    the gradient buckets with those of the size that the file states.
/// 2. Compares the record of the search, the lines of what was searched and left out, completeness,
///    gap, open plans, warnings and the families that were looked at with what follows from what
///    was asked. A document without a request must be an import, a reschedule or a baseline; of any
///    other these are left unchecked.
/// 3. Chooses the baselines anew and compares their figures.
/// 4. Derives the bound. Under 1F1B or GPipe it tries every stage boundary, device set, micro-batch
///    size, bucket size and recomputation that was asked for, from the last stage on, dropping a
///    partial plan only where no plan that ends with it can be faster than the stated bound, and
///    simulates what is left at all depths. Devices that nothing tells apart are tried once: those
///    of one switched server beside the same NIC, and the servers of one device in the same group.
///    Where that exceeds the budget, and for other families, the bound is that of the least work
///    that every plan has (search/families/family_bound.h).
/// 5. Where several families were looked at, repeats the whole search within the budget and
/// compares
///    their records.
///
/// Exponential, up to the budget or until `progress` says stop; step 3 takes as long as the DAPPLE
/// planner. Requires: no faults of check_plan() but memory, and a restriction if the request names
/// a target.
PlanVerification verify(const PlanDocument& document, const Topology& topology,
                        const VerifyOptions& options = {}, Progress* progress = nullptr);

}  // namespace dapple::planner
