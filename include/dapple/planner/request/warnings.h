// The warnings of a plan's file.
#pragma once

#include <string>
#include <vector>

#include "dapple/plan/document.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// Returns warnings about doubtful figures in the profile (profile/doubts.h), about a speedup above
/// the number of the plan's devices, and about GPUs without reserved memory, with the free memory
/// of the fullest one; then about the assumptions behind the plan's figures: batch sizes far from a
/// measured one, idle devices, a single-device time for a model that no single device has room for,
/// parts of backwards that were not measured, no optimizer time. Requires: the document's
/// prediction is that of its plan.
std::vector<std::string> warnings_about(const PlanDocument& document, const Topology& topology);

/// Returns all warnings of a plan's file: those about its inputs, warnings_about() the document,
/// and those about the request and about what ended the search before the gap was closed. Requires:
/// the document has a request.
std::vector<std::string> warnings_of(const PlanDocument& document, const Topology& topology);

}  // namespace dapple::planner
