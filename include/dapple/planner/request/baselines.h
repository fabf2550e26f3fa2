// What others would have chosen, simulated with the same costs: one plan per baseline, each the
// best of its kind.
//
//   data-parallel  one stage over all devices (over as many as the largest micro-batch has samples,
//                  if fewer), gradients reduced in buckets beside the last backward
//   gpipe-even     two or more stages of even time on equal numbers of devices, GPipe's schedule
//   1f1b-even      the same, one forward and one backward in turn
//   straight       one device per stage, as many stages as devices or layers, the slowest of them
//                  as fast as it can be
//   pipedream      the partition of search/pipedream_search/, run synchronously: its replicas
//                  share each micro-batch
//
// Each at every size of micro-batch, under the three placement policies of
// search/placement/placement.h (PipeDream's along the fill order), recomputing nowhere or on all
// stages, at the depths that the DAPPLE planner tries. Work is limited, so that on large problems a
// better size of micro-batch or better depths may be missed; what was measured so is within a
// percent of the best.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/plan/document.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

struct PlannerOptions;
class Progress;

/// A baseline's figures, and the plan that has them.
struct BaselinePlan {
  Baseline figures;
  Plan plan;  // of an infeasible baseline: the one that lacks the least memory
};

/// All that make_plan() compares with, in this order; "dapple" is the DAPPLE planner's plan.
inline constexpr const char* kBaselineNames[] = {"data-parallel", "gpipe-even", "1f1b-even",
                                                 "straight",      "pipedream",  "dapple"};

/// All but the last of kBaselineNames, in their order. A baseline that does not exist for the
/// problem is left out: a pipeline with one device or layer, no number of stages that divides the
/// devices, more replicas than the largest micro-batch has samples. Where no plan of a kind fits,
/// the one that lacks the least memory stands for it. Deterministic. Pins are not looked at.
/// Once `progress` says stop, those that have no plan yet are left out.
std::vector<BaselinePlan> make_baselines(const ModelProfile& profile, const Topology& topology,
                                         const PlannerOptions& options,
                                         Progress* progress = nullptr);

}  // namespace dapple::planner
