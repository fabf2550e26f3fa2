// For plans whose replicas work on far fewer samples at a time than were measured: the plan's time,
// and that of the best plan, under the other batch scaling. Times of small batches are either in
// proportion to those of measured ones (proportional) or equal to them (floor).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dapple/plan/document.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/report/show.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

/// A plan depends on the batch scaling if a replica works on fewer samples than the smallest batch
/// of the layers that were measured at one batch size only, divided by this.
inline constexpr std::int64_t kLeaningPart = 8;

struct OtherScaling {
  /// The fewest samples that a replica works on at a time.
  std::int64_t samples = 1;
  /// The smallest batch of the layers that were measured at one batch size only.
  std::int64_t measured = 1;
  /// The profile's batch scaling.
  BatchScaling own{};
  /// The plan's iteration time under the profile's scaling.
  Duration iteration;
  /// The plan's iteration time under the other scaling.
  Duration otherwise;
  /// The iteration time of a plan searched under the other scaling, if that was done.
  std::optional<Duration> searched;
  /// The shape_of() that plan.
  std::string shape;
};

/// Returns the plan's times under both scalings, or nothing if it does not depend on the scaling.
/// O(a simulation).
std::optional<OtherScaling> in_other_scaling(const PlanDocument& document,
                                             const Topology& topology);

/// Adds the plan that the narrow search of the DAPPLE planner finds under floor, if the profile's
/// own scaling is proportional. Adds nothing if the progress stops the search.
void search_in_other_scaling(OtherScaling& scaling, const planner::PlanningContext& context,
                             const std::optional<planner::PlanRestriction>& restriction);

/// Returns a paragraph of the summary.
std::string text_of(const OtherScaling& scaling, const report::TextStyle& style);

}  // namespace dapple::app
