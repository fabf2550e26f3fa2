#include "as_pinned.h"

#include <algorithm>

#include "dapple/planner/depths.h"

namespace dapple {

bool is_as_pinned(const Plan& plan, const Pins& pins) {
  if (pins.stages && *pins.stages != static_cast<int>(plan.stages.size())) return false;
  if (pins.equal_shares && plan.micro_batch_size % pins.replicas.value_or(1) != 0) return false;
  if (pins.least_depths &&
      (plan.family != ScheduleFamily::OneFOneB ||
       plan.warmup_depths != least_depths(plan.stages.size(), plan.num_micro_batches))) {
    return false;
  }
  return std::all_of(plan.stages.begin(), plan.stages.end(), [&](const StagePlan& stage) {
    return pins.allow(stage.layers, static_cast<std::int64_t>(stage.devices.size()),
                      stage.recompute);
  });
}

}  // namespace dapple
