#include "planner/parallelism/best_uniform.h"

#include <utility>
#include <variant>

#include "planner/request/stop_question.h"

namespace dapple::planner {

std::optional<BaselinePlan> best_uniform(const std::vector<AskedParallelism>& asked,
                                         const PlanningContext& context) {
  const StopQuestion is_stopped(context.progress);
  std::optional<BaselinePlan> best;
  for (const AskedParallelism& form : asked) {
    const auto* inputs = std::get_if<PlanInputs>(&form.inputs);
    if (inputs == nullptr || !form.stage_forms.empty()) continue;
    const Topology topology{inputs->topology};
    const PlanningContext of_form{inputs->profile, topology, context.options, context.progress};
    auto found = best_even_plan(of_form, best ? best->figures.iteration : Duration::infinite());
    if (is_stopped()) return std::nullopt;
    if (!found) continue;
    found->plan.parallelism = form.parallelism;
    found->figures.shape += "; " + short_text(form.parallelism);
    best = std::move(found);
  }
  return best;
}

}  // namespace dapple::planner
