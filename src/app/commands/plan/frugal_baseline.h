// Says when a plan of the same simulated time needs less memory than the one that was chosen.
#pragma once

#include <string>

#include "dapple/planner/result/made_plan.h"
#include "dapple/report/show.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

/// Returns a line about the baseline that is as fast as the plan and whose fullest device needs
/// least memory, with what it leans on if its times are scaled from larger batches; an empty text
/// if none needs noticeably less than the plan, or if pins or a runtime were asked for, which
/// baselines do not have. O(actions) for each of these baselines.
std::string frugal_baseline_text(const planner::MadePlan& made, const Topology& topology);

}  // namespace dapple::app
