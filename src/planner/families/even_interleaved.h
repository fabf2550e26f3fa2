// The fastest plan under the interleaved schedule of stages of even time on equal numbers of
// devices: what a careful person finds by trying all numbers of stages, of stages per device and of
// micro-batches. It is part of the baseline best-uniform, and a plan of every search of that
// schedule.
#pragma once

#include "dapple/core/quantity.h"
#include "dapple/planner/candidates/score.h"
#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

/// Whether the options ask for the interleaved schedule, alone or among others.
bool asks_for_interleaving(const PlannerOptions& options);

/// Returns the fastest plan that fits and is faster than `to_beat`, with recomputation on no stage
/// or on all; infeasible if none was found. Pins are ignored. The work is limited by simulated
/// tasks: on large problems a better plan may be missed. Deterministic, unless stopped.
SimulatedPlan best_even_interleaved(const PlanningContext& context, Duration to_beat);

}  // namespace dapple::planner
