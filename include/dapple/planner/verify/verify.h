// Verifies the claims of a plan file: its figures, its record of the search, and the lower bound
// that it states. The file holds the request, so that everything but the counts of the search's
// work is computed anew from it. The bound is first derived by means that share with the search
// only the costs, the simulation and the lower bound of a given partial plan, so that a mistake in
// the search's pruning is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/plan/bound_check.h"
#include "dapple/plan/bound_proof.h"
#include "dapple/plan/document.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// What was neither confirmed nor refuted, and why.
enum class UncheckedKind : std::uint8_t {
  /// Baselines, warnings and the space: the file does not say what was requested.
  WhatWasNotAsked,
  /// The file is of a version that gave other warnings.
  WarningsOfOlderVersion,
  /// The imported file, from which some warnings follow, is not here.
  WarningsOfImport,
  /// `progress` said stop before the baselines were chosen anew.
  Baselines,
  /// The search was stopped before the baselines were as good as they can be.
  BaselinesOfStoppedSearch,
  /// `progress` said stop before the search, which gives the records of families, was repeated.
  Families,
  FamiliesBeyondBudget,
  FamiliesOfStoppedSearch,
  /// The repeated search did other work than the file's, as another version does, and found other
  /// plans or bounds, which contradict no record.
  RecordsOfAnotherSearch,
};
struct Unchecked {
  UncheckedKind kind{};
  /// The number of warnings of an import, or of records of another search.
  std::size_t count = 0;

  friend bool operator==(const Unchecked&, const Unchecked&) = default;
};

struct PlanVerification {
  /// The false claims, with their places in the file.
  std::vector<Violation> violations;
  /// The faults of the given proof, with the places in its file.
  std::vector<Violation> proof_faults;
  BoundCheck bound = BoundCheck::NotStated;
  /// The lower bound on all plans of the requested space, as derived anew.
  Duration proven;
  BoundProof proof = BoundProof::LeastWork;
  /// What else was neither confirmed nor refuted.
  std::vector<Unchecked> unchecked;
  /// Whether `progress` said stop before the budget was spent.
  bool is_stopped = false;
  /// Partial plans costed to derive the bound.
  std::int64_t partial_plans = 0;
  /// Simulations of whole plans, each at one depth vector.
  std::int64_t simulated = 0;

  /// Whether no claim is false and none was left unchecked.
  bool is_whole() const {
    return violations.empty() && unchecked.empty() &&
           (bound == BoundCheck::NotStated || bound == BoundCheck::Proven);
  }
};

/// The default budget, in partial plans costed or simulations that take as long, after which the
/// derivation of the bound is given up: a second or two.
inline constexpr std::int64_t kVerificationBudget = 50'000;

struct VerifyOptions {
  /// The restriction of the requested target, if there is one.
  std::optional<PlanRestriction> restriction = {};
  /// The budget for deriving the bound of each form of parallelism; repeating a search may take ten
  /// times as long.
  std::int64_t budget = kVerificationBudget;
  /// The proof of the stated bound, which is then checked in place of deriving the bound, and the
  /// search is repeated without a budget; null if there is none.
  const ProofDocument* proof = nullptr;
};

/// Verifies a plan document in these steps, up to the first one that finds a false claim:
///
/// 1. Simulates the plan anew with the file's contention, and in the draws of its jitter, and
///    compares every predicted figure, and compares the gradient buckets with those of the size
///    that the file states.
/// 2. Compares the record of the search with what follows from the request: the lines of what was
///    searched and left out, completeness, gap, open plans, warnings and the families searched. A
///    document without a request must be an import, a reschedule or a baseline; for any other these
///    are left unchecked.
/// 3. Chooses the baselines anew and compares their figures.
/// 4. Derives the bound. Under 1F1B or GPipe it tries every stage boundary, device set, micro-batch
///    size, bucket size and recomputation of the requested space, from the last stage on. It drops
///    a partial plan only where no plan that ends with it can be faster than the stated bound, and
///    simulates the remaining plans at all depths. Interchangeable devices are tried once: those of
///    one switched server with the same NIC, and the servers of one device in the same group. Where
///    that exceeds the budget, relaxed decision diagrams below the stated bound are tried, and then
///    the exact search below it, within budgets of their own. For other families, and where all of
///    that is not enough, the bound is that of the least work that every plan has
///    (search/families/family_bound.h). Where a proof is given, it is checked instead.
/// 5. Where several families were searched, repeats the whole search within the budget and compares
///    the records of the families. Where the counts of its work are those of the file, these are
///    the same; otherwise a record is false if it is contradicted, and open if it differs.
///
/// Exponential, up to the budget or until `progress` says stop; step 3 takes as long as the DAPPLE
/// planner. Requires: check_plan() finds no faults but missing memory; a restriction is given if
/// the request names a target.
PlanVerification verify(const PlanDocument& document, const Topology& topology,
                        const VerifyOptions& options = {}, Progress* progress = nullptr);

}  // namespace dapple::planner
