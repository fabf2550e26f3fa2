// The warnings of a plan's file.
#pragma once

#include <string>
#include <vector>

#include "dapple/plan/document.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// Returns warnings about doubtful figures in the profile (profile/doubts.h), about a speedup above
/// the number of the plan's devices, and about GPUs without reserved memory, with the free memory
/// of the fullest one; then the warnings of the function above. Requires: the document's prediction
/// is that of its plan.
std::vector<std::string> warnings_about(const PlanDocument& document, const Topology& topology);

/// Returns all warnings of a plan's file: those about its inputs, warnings_about() the document,
/// and those about the request and about what ended the search before the gap was closed. Requires:
/// the document has a request.
std::vector<std::string> warnings_of(const PlanDocument& document, const Topology& topology);

}  // namespace dapple::planner
