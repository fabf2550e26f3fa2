// Baselines: plans that other planners or rules of thumb would have chosen, simulated with the same
// costs. There is one plan per baseline, the best of its kind.
//
//   data-parallel  one stage over all devices (over as many as the largest micro-batch has samples,
//                  if fewer), gradients reduced in buckets beside the last backward
//   gpipe-even     two or more stages of even time on equal numbers of devices, GPipe's schedule
//   1f1b-even      the same under 1F1B
//   straight       one device per stage, as many stages as devices or layers, the slowest of them
//                  as fast as possible
//   best-uniform   the fastest of data-parallel and 1f1b-even, and of the same stages, several on
//                  each device, under the interleaved schedule where that is asked for (under that
//                  alone where no other is), of all forms of parallelism that are asked for, where
//                  there are several
//   pipedream      the partition of search/pipedream_search/, run synchronously: its replicas
//                  share each micro-batch
//
// Each is tried at every micro-batch size, under the three placement policies of
// search/placement/placement.h (PipeDream's partition along the fill order), with recomputation on
// no stage or on all, at the depths that the DAPPLE planner tries. The work is limited, so on large
// problems a better micro-batch size or better depths may be missed; in measurements the result was
// within a percent of the best.
#pragma once

#include <optional>
#include <vector>

#include "dapple/plan/document.h"
#include "dapple/plan/plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/dapple_search/dapple_search.h"

namespace dapple::planner {

/// A baseline's figures and its plan.
struct BaselinePlan {
  Baseline figures;
  /// The plan; for an infeasible baseline the one that lacks the least memory.
  Plan plan;
};

/// The baselines that make_plan() compares with, in this order; "dapple" is the plan of the DAPPLE
/// planner.
inline constexpr const char* kBaselineNames[] = {"data-parallel", "gpipe-even", "1f1b-even",
                                                 "straight",      "pipedream",  "dapple"};

/// Returns all baselines but the last of kBaselineNames, in their order. A baseline that does not
/// exist for the problem is left out: a pipeline on one device or of one layer, no number of stages
/// that divides the devices, more replicas than the largest micro-batch has samples. Where no plan
/// of a kind fits, the one that lacks the least memory stands for it. Pins are ignored. Once
/// the progress says stop, baselines that have no plan yet are left out. Deterministic, unless
/// stopped.
std::vector<BaselinePlan> make_baselines(const PlanningContext& context);

/// The baseline over all forms of parallelism (planner/parallelism/best_uniform.h), behind the
/// others.
inline constexpr const char* kBestUniformName = "best-uniform";

/// Returns the candidates of 1f1b-even at every number of stages and micro-batch size.
std::vector<search::Candidate> even_candidates(const PlanningContext& context);

/// Returns the fastest plan of one stage on all devices, or of two or more of even time on equal
/// numbers of devices, under 1F1B, that fits and is faster than `to_beat`; nothing if none was
/// found. As make_baselines() otherwise.
std::optional<BaselinePlan> best_even_plan(const PlanningContext& context, Duration to_beat);

}  // namespace dapple::planner
