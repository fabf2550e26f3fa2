// What a plan file says of its search, against what was asked: the request itself, the dimensions
// searched and left out, completeness, warnings, and what others would have chosen.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/planner/request/planner.h"
#include "dapple/planner/request/restricted.h"
#include "planner/verify/claims.h"

namespace dapple::planner {

/// A document and what it is checked with; outlives whoever holds it.
struct ClaimedPlan {
  const PlanDocument& document;
  const Topology& topology;
  const std::optional<PlanRestriction>& restriction;  // of the target that was asked for
};

inline bool lacks_memory(const DeviceFigures& device) {
  return device.peak_memory > device.memory_limit;
}

/// What was asked, against the plan: it has to be one of those asked for. Requires: a request.
void check_request(Claims& claims, const ClaimedPlan& claimed);

/// The record of the search, completeness, the plans left open and the warnings; figures that count
/// work are taken as they are. Requires: a request that check_request() accepts.
void check_search(Claims& claims, const ClaimedPlan& claimed);

/// The same of a document without a request: what is written of a plan that was imported,
/// rescheduled or chosen as a baseline. False for any other, of which nothing is checked. Adds to
/// `unchecked` the warnings that do not follow from the plan.
bool check_unsearched(Claims& claims, const ClaimedPlan& claimed,
                      std::vector<std::string>& unchecked);

/// What contradicts itself in a document of a planner that does not say what was asked, whatever
/// that was.
void check_unasked(Claims& claims, const ClaimedPlan& claimed);

/// Makes the baselines anew, which takes about as long as the DAPPLE planner does, and compares
/// them. Adds a line to `unchecked` if it was told to stop first, or if the search was stopped and
/// some are missing or slower than those made here. Requires: as for check_search().
void check_baselines_anew(Claims& claims, const ClaimedPlan& claimed, Progress* progress,
                          std::vector<std::string>& unchecked);

}  // namespace dapple::planner
