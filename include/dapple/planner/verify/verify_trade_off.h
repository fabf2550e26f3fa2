// Verifies what a trade-off claims: every plan and its bound, that the searches without a plan have
// none, which plans are on the Pareto front, which one is chosen, and what is proven of all plans.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/plan/trade_off.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/verify/verify.h"

namespace dapple::planner {

struct TradeOffVerification {
  /// The false claims, with their places in the file.
  std::vector<Violation> violations;
  /// What was found of each search. For one without a plan, only the bound is checked: NotStated
  /// where it is zero, and an infinite one is Proven where no plan can fit.
  std::vector<PlanVerification> searches;

  /// Whether no claim is false and none was left unchecked.
  bool is_whole() const;
};

/// Verifies each plan as verify() does, with the budget, and searches again for the others; then
/// derives from the searches what the file says of all of them: (W1) and (W2) in docs/bounds.md.
/// Stops at the first search with a false claim. `restriction_of` returns the restriction of the
/// target that a plan was requested for. Requires: what verify() requires, of every plan;
/// `topologies` are those of the plans, one for each search, nothing for those without. Takes as
/// long as the searches, or longer.
TradeOffVerification verify_trade_off(
    const TradeOffDocument& document, const std::vector<std::optional<Topology>>& topologies,
    const std::function<std::optional<PlanRestriction>(const PlanDocument&)>& restriction_of,
    std::int64_t budget, Progress* progress = nullptr);

}  // namespace dapple::planner
