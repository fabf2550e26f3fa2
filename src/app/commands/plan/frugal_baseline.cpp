#include "app/commands/plan/frugal_baseline.h"

#include <fmt/format.h>

#include <cstdint>

#include "dapple/plan/prediction.h"
#include "dapple/planner/candidates/evaluate.h"

namespace dapple::app {
namespace {

/// Whether some replica has fewer samples of a micro-batch than any measurement of its layers.
bool is_below_measurements(const Plan& plan, const ModelProfile& profile) {
  for (const StagePlan& stage : plan.stages) {
    const std::int64_t share =
        plan.micro_batch_size / static_cast<std::int64_t>(stage.devices.size());
    for (std::int32_t layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
      const Layer& measured = profile.layers[static_cast<std::size_t>(layer)];
      if (share < measured.measurements.front().batch_size) return true;
    }
  }
  return false;
}

}  // namespace

std::string frugal_baseline_text(const planner::MadePlan& made, const Topology& topology) {
  const PlanDocument& document = made.document;
  const bool is_free =
      document.request && document.request->target.empty() && document.request->pins.empty();
  if (!is_free) return {};
  const Bytes own = document.prediction.most_memory();
  constexpr std::int64_t kNoticeable = 20;  // a twentieth less
  Bytes least{own.count - own.count / kNoticeable};
  std::string text;
  for (const planner::BaselinePlan& baseline : made.baselines) {
    const bool is_as_fast = baseline.figures.feasible &&
                            baseline.figures.iteration == document.prediction.iteration &&
                            baseline.plan.parallelism == document.plan.parallelism;
    if (!is_as_fast) continue;
    Plan plan = baseline.plan;
    const planner::Evaluation evaluation =
        planner::evaluate(plan, document.profile, topology,
                          {document.prediction.contention, document.prediction.replicas});
    const Bytes needed = evaluation.prediction.most_memory();
    if (needed >= least) continue;
    least = needed;
    text = fmt::format(
        "Less memory: {} is as fast with {} a device (micro-batches of {}{})\n",
        baseline.figures.name, report::show(needed), plan.micro_batch_size,
        is_below_measurements(plan, document.profile) ? ", smaller than measured ones" : "");
  }
  return text;
}

}  // namespace dapple::app
