// The baseline best-uniform: the fastest plan of stages of even time, over all forms of parallelism
// that are asked for. It is what a careful person finds by trying all degrees, micro-batch sizes
// and numbers of stages.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "dapple/planner/baselines/baselines.h"
#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

/// The families of the plans that are compared.
struct UniformFamilies {
  bool one_f_one_b = true;
  bool interleaved = false;
};

/// Returns 1F1B, and the interleaved schedule where that is asked for and the runtime has it; that
/// alone if no other is asked for.
UniformFamilies uniform_families(const PlannerOptions& options,
                                 const std::optional<PlanRestriction>& restriction);

/// Returns the fastest best_even_plan() or best_even_interleaved(), as far as these are among the
/// families, of the forms that have groups, of equals the first; its plan names the form, and so
/// does its shape. Nothing if none was found to fit, or if the search was stopped before the last
/// form was looked at. Where `to_beat` is finite, only faster plans are looked for. `context` is
/// that of the devices themselves. `bounds` are what is known of work_lower_bound() by form,
/// without pins.
std::optional<BaselinePlan> best_uniform(const std::vector<AskedParallelism>& asked,
                                         const PlanningContext& context, UniformFamilies families,
                                         Duration to_beat = Duration::infinite(),
                                         const std::map<Parallelism, Duration>& bounds = {});

}  // namespace dapple::planner
