#include "planner/parallelism/best_uniform.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "planner/baselines/baseline_search.h"
#include "planner/candidates/work_lower_bound.h"
#include "planner/families/even_interleaved.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {

namespace {

/// Returns the fastest plan of one form, if it is faster than `to_beat`.
std::optional<BaselinePlan> best_of_form(const PlanningContext& context, Duration to_beat,
                                         UniformFamilies families) {
  std::optional<BaselinePlan> best;
  if (families.one_f_one_b) best = best_even_plan(context, to_beat);
  if (!families.interleaved) return best;
  SimulatedPlan even = best_even_interleaved(context, best ? best->figures.iteration : to_beat);
  if (!even.feasible()) return best;
  best = as_baseline(kBestUniformName, std::move(even.plan), even.iteration, context);
  // The order leaves no depths to choose.
  best->figures.depth_limited = false;
  return best;
}

}  // namespace

UniformFamilies uniform_families(const PlannerOptions& options,
                                 const std::optional<PlanRestriction>& restriction) {
  const auto runs = [&](ScheduleFamily family) {
    return !restriction || std::find(restriction->families.begin(), restriction->families.end(),
                                     family) != restriction->families.end();
  };
  const bool interleaved = asks_for_interleaving(options) && runs(ScheduleFamily::Interleaved);
  return {.one_f_one_b = options.every_family || !interleaved, .interleaved = interleaved};
}

std::optional<BaselinePlan> best_uniform(const std::vector<AskedParallelism>& asked,
                                         const PlanningContext& context, UniformFamilies families,
                                         Duration to_beat,
                                         const std::map<Parallelism, Duration>& bounds) {
  const StopQuestion is_stopped(context.progress);
  // The baselines ignore pins.
  PlannerOptions options = context.options;
  options.pins = {};
  std::optional<BaselinePlan> best;
  for (const AskedParallelism& form : asked) {
    const auto* inputs = std::get_if<PlanInputs>(&form.inputs);
    if (inputs == nullptr || !form.stage_forms.empty()) continue;
    const Topology topology{inputs->topology};
    const PlanningContext of_form{inputs->profile, topology, options, context.progress};
    const Duration most = best ? best->figures.iteration : to_beat;
    if (!most.is_infinite()) {
      const auto known = bounds.find(form.parallelism);
      if ((known == bounds.end() ? work_lower_bound(of_form) : known->second) >= most) continue;
    }
    auto found = best_of_form(of_form, most, families);
    if (is_stopped()) return std::nullopt;
    if (!found) continue;
    found->plan.parallelism = form.parallelism;
    found->figures.shape += "; " + short_text(form.parallelism);
    best = std::move(found);
  }
  return best;
}

}  // namespace dapple::planner
