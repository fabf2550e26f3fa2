// A schedule device by device, each action with whom it exchanges how many bytes: what a runtime
// needs to run a plan.
#pragma once

#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/schedule/schedule.h"

namespace dapple {

/// Whom a device exchanges bytes with in one action: for a send or receive each peer with its share
/// of the tensor, for an all-reduce the others who take part with the whole bucket.
struct SchedulePeer {
  DeviceIndex device;
  SampleRange samples;  // of the micro-batch, sent or received; none for an all-reduce
  Bytes size;
};

/// One action of one device. A send or receive without peers moves nothing: its tensor stays.
struct DeviceAction {
  Action action;
  std::vector<SchedulePeer> peers;
  Bytes size;  // what this device sends, receives or reduces; zero for computation
};

/// All that one device does.
struct DeviceSchedule {
  DeviceIndex device;
  std::vector<StageIndex> stages;  // at least one
  std::vector<DeviceAction> actions;
};

/// The list of one of the lane's devices. O(actions * peers). Requires: `costs` are those of the
/// plan from which the lane's schedule was generated.
DeviceSchedule device_schedule(const Lane& lane, DeviceIndex device, const PlanCost& costs);

/// Lane by lane, each lane's devices in their order.
std::vector<DeviceSchedule> device_schedules(const Schedule& schedule, const PlanCost& costs);

}  // namespace dapple
