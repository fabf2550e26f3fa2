// How much faster a plan could be over another order of the layers than that of the profile, where
// the layers form a graph.
#pragma once

#include <string>

#include "app/commands/progress_line.h"
#include "dapple/plan/document.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/report/show.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

/// Compares the plan with the lower bound on plans over all orders of the layers, (G1)-(G5) of
/// docs/bounds.md, until `progress` says stop, and returns the sentence that says what is known by
/// then. The bound is of the plan's form of parallelism. Requires: the plan was made under 1F1B or
/// GPipe with these options, its replicas are together and its stages have one form; `topology` is
/// the document's.
std::string compare_orders(const PlanDocument& document, const Topology& topology,
                           const planner::PlannerOptions& options, ProgressLine& progress);

/// Returns the lines of a summary that show such a sentence.
std::string order_gap_text(const std::string& sentence, const report::TextStyle& style);

}  // namespace dapple::app
