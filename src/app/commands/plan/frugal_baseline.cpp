#include "app/commands/plan/frugal_baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dapple/cost/buckets.h"
#include "dapple/cost/cost_model.h"
#include "dapple/plan/prediction.h"
#include "dapple/schedule/schedule.h"
#include "dapple/simulate/device_memory.h"

namespace dapple::app {
namespace {

/// Whether some replica has fewer samples of a micro-batch than all measurements of one of its
/// layers on some kind of device.
bool is_below_measurements(const Plan& plan, const ModelProfile& profile) {
  for (const StagePlan& stage : plan.stages) {
    const std::int64_t share =
        plan.micro_batch_size / static_cast<std::int64_t>(stage.devices.size());
    for (std::int32_t layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
      const Layer& measured = profile.layers[static_cast<std::size_t>(layer)];
      for (std::size_t kind = 0; kind <= profile.other_devices.size(); ++kind) {
        if (share < measurements_on(measured, kind).front().batch_size) return true;
      }
    }
  }
  return false;
}

/// Returns the peak memory of the fullest device.
Bytes most_memory(Plan plan, const ModelProfile& profile, const Topology& topology,
                  Replicas replicas) {
  fill_gradient_buckets(plan, profile);
  const PlanCost costs = CostModel(profile, topology).plan_cost(plan);
  const Schedule schedule = generate(plan, replicas);
  const std::vector<Bytes> peaks =
      simulate::peak_memories(schedule, simulate::device_memory(schedule, costs));
  return *std::max_element(peaks.begin(), peaks.end());
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
    const bool is_as_fast =
        baseline.figures.feasible && baseline.figures.iteration == document.prediction.iteration &&
        baseline.plan.parallelism == document.plan.parallelism && document.plan.stage_forms.empty();
    if (!is_as_fast) continue;
    const Bytes needed =
        most_memory(baseline.plan, document.profile, topology, document.prediction.replicas);
    if (needed >= least) continue;
    least = needed;
    text = fmt::format("Less memory: {} is as fast with {} a device (micro-batches of {}{})\n",
                       baseline.figures.name, report::show(needed), baseline.plan.micro_batch_size,
                       is_below_measurements(baseline.plan, document.profile)
                           ? ", smaller than measured ones"
                           : "");
  }
  return text;
}

}  // namespace dapple::app
