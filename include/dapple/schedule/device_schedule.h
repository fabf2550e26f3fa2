// The schedule of each device, with the peers and byte counts of every action: everything that a
// runtime needs to execute a plan.
#pragma once

#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/schedule/schedule.h"

namespace dapple {

/// A peer of one action. In a send or receive, each peer has its share of the tensor; in an
/// all-reduce, each other participant has the whole bucket.
struct SchedulePeer {
  DeviceIndex device;
  /// The samples of the micro-batch that are sent or received; empty for an all-reduce.
  SampleRange samples;
  Bytes size;
};

/// One action of one device. A send or receive without peers moves no data: the tensor stays on the
/// device.
struct DeviceAction {
  Action action;
  std::vector<SchedulePeer> peers;
  /// The bytes that this device sends, receives or reduces; zero for computation.
  Bytes size;
};

/// All actions of one device, in order.
struct DeviceSchedule {
  DeviceIndex device;
  /// The stages that the device holds, at least one.
  std::vector<StageIndex> stages;
  std::vector<DeviceAction> actions;
};

/// Returns the schedule of one of the lane's devices. O(actions * peers). Requires: `costs` are
/// those of the plan from which the lane's schedule was generated.
DeviceSchedule device_schedule(const Lane& lane, DeviceIndex device, const PlanCost& costs);

/// Returns the schedules of all devices, lane by lane, each lane's devices in their order.
std::vector<DeviceSchedule> device_schedules(const Schedule& schedule, const PlanCost& costs);

}  // namespace dapple
