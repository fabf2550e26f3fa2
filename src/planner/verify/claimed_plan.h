// A plan file whose claims are checked.
#pragma once

#include <optional>

#include "dapple/plan/document.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/topology/topology.h"

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

}  // namespace dapple::planner
