// Checks what a plan file says about its search against the request: the request itself, the
// dimensions searched and left out, completeness, warnings and baselines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/plan/document.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/verify/verify.h"
#include "planner/verify/claims.h"

namespace dapple::planner {

/// A document and what it is checked with; what it refers to must outlive all that hold it.
struct ClaimedPlan {
  const PlanDocument& document;
  const Topology& topology;
  // The restriction of the requested target, if there is one.
  const std::optional<PlanRestriction>& restriction;
};

inline bool lacks_memory(const DeviceFigures& device) {
  return device.peak_memory > device.memory_limit;
}

/// Checks that the plan is one of those that the request allows. Requires: the document has a
/// request.
void check_request(Claims& claims, const ClaimedPlan& claimed);

/// Checks the record of the search, completeness, the number of open plans and the warnings;
/// figures that count work are not checked. Requires: a request that check_request() accepts.
void check_search(Claims& claims, const ClaimedPlan& claimed);

/// Checks the same in a document without a request, if its plan was imported, rescheduled or chosen
/// as a baseline. Returns false for any other plan, without checking anything. Adds to `unchecked`
/// the warnings that do not follow from the plan.
bool check_unsearched(Claims& claims, const ClaimedPlan& claimed,
                      std::vector<Unchecked>& unchecked);

/// Checks that a document of a planner without a request does not contradict itself.
void check_unasked(Claims& claims, const ClaimedPlan& claimed);

/// Makes the baselines anew, which takes about as long as the DAPPLE planner does, and compares
/// them. Adds to `unchecked` if it was stopped first, or if the search was stopped and some
/// baselines are missing or slower than those made here. Requires: the same as check_search().
void check_baselines_anew(Claims& claims, const ClaimedPlan& claimed, Progress* progress,
                          std::vector<Unchecked>& unchecked);

}  // namespace dapple::planner
