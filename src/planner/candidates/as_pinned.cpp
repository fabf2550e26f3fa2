#include "planner/candidates/as_pinned.h"

#include <algorithm>

#include "dapple/planner/candidates/depths.h"

namespace dapple::planner {

namespace {

bool is_in_order(const Plan& plan) {
  DeviceIndex last{-1};
  for (const std::vector<StageIndex>& stages : stages_by_device_group(plan)) {
    for (const DeviceIndex device : plan.stages[stages.front().position()].devices) {
      if (device <= last) return false;
      last = device;
    }
  }
  return true;
}

}  // namespace

bool put_in_order(std::vector<StagePlan>& stages) {
  std::vector<DeviceIndex> devices;
  for (const StagePlan& stage : stages) {
    devices.insert(devices.end(), stage.devices.begin(), stage.devices.end());
  }
  if (std::is_sorted(devices.begin(), devices.end())) return false;
  std::sort(devices.begin(), devices.end());
  auto next = devices.begin();
  for (StagePlan& stage : stages) {
    for (DeviceIndex& device : stage.devices) device = *next++;
  }
  return true;
}

bool is_as_pinned(const Plan& plan, const Pins& pins) {
  if (pins.stages && *pins.stages != static_cast<int>(plan.stages.size())) return false;
  if (pins.equal_shares &&
      plan.micro_batch_size % (pins.replicas.value_or(1) * pins.replicas_in_group) != 0) {
    return false;
  }
  if (plan.num_micro_batches < pins.least_micro_batches) return false;
  if (pins.least_depths &&
      (plan.family != ScheduleFamily::OneFOneB ||
       plan.warmup_depths != least_depths(plan.stages.size(), plan.num_micro_batches))) {
    return false;
  }
  if (pins.in_order && !is_in_order(plan)) return false;
  return std::all_of(plan.stages.begin(), plan.stages.end(), [&](const StagePlan& stage) {
    return pins.allow(stage.layers, replicas_of(stage), stage.recompute);
  });
}

}  // namespace dapple::planner
