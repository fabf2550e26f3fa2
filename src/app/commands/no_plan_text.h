// Words why there is no plan, and what would help.
#pragma once

#include <string>

#include "dapple/io/documents/result_document.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/profile/model_profile.h"
#include "dapple/report/show.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

/// Words why there is no plan: what is pinned, what is missing on the tightest device or why else
/// there is none, and the remedy.
io::NoPlanResult no_plan_result(const planner::Infeasible& infeasible, const ModelProfile& profile,
                                const Topology& topology);

/// Returns the lines that say so of a model on a topology.
std::string no_plan_text(const io::NoPlanResult& result, const std::string& model,
                         const std::string& topology, const report::TextStyle& style);

/// Returns why a plan cannot run under the schedule.
std::string refusal_text(const planner::Refusal& refusal, ScheduleFamily family);

}  // namespace dapple::app
