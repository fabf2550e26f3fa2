// A plan whose replicas work on far fewer samples at a time than were measured: its time, and that
// of the plan to make instead, if small batches took as long as measured ones do, or in proportion.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dapple/plan/document.h"
#include "dapple/planner/request/planner.h"
#include "dapple/planner/request/restricted.h"
#include "dapple/report/show.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

/// Replicas below this part of the smallest batch of a layer that was measured at one only.
inline constexpr std::int64_t kLeaningPart = 8;

struct OtherScaling {
  std::int64_t samples = 1;          // that some replica works on at a time
  std::int64_t measured = 1;         // the smallest batch of such a layer
  BatchScaling own{};                // the profile's
  Duration iteration;                // of the plan under the profile's
  Duration otherwise;                // of the plan under the other
  std::optional<Duration> searched;  // of a plan searched under the other, if that was done
  std::string shape;                 // shape_of() it
};

/// The plan's times under both; nothing where it leans on no such batch. O(a simulation).
std::optional<OtherScaling> in_other_scaling(const PlanDocument& document,
                                             const Topology& topology);

struct ScalingSearch {
  const ModelProfile& profile;
  const Topology& topology;
  const planner::PlannerOptions& options;
  const std::optional<planner::PlanRestriction>& restriction;
};
/// Adds what the DAPPLE planner, whose work has a budget, finds under floor, of a profile whose own
/// scaling is proportional; nothing where it is told to stop first.
void search_in_other_scaling(OtherScaling& scaling, const ScalingSearch& search,
                             planner::Progress* progress);

/// A paragraph of the summary.
std::string text_of(const OtherScaling& scaling, const report::TextStyle& style);

}  // namespace dapple::app
