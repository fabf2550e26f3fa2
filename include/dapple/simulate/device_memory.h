// The memory that the devices of a schedule need, and where it exceeds their capacity. Peaks depend
// on the order of computations alone.
#pragma once

#include <vector>

#include "dapple/cost/memory.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/schedule/schedule.h"
#include "dapple/timeline/timeline.h"

namespace dapple::simulate {

/// Returns one entry per used device, lane by lane. The stages of a device share one workspace, as
/// a device runs one computation at a time; all other fixed memory of the stages adds up.
/// O(devices * stages per device). Requires: `costs` are those of the schedule's plan.
std::vector<DeviceMemory> device_memory(const Schedule& schedule, const PlanCost& costs);

/// Returns the peak memory of each of these devices, in their order. O(actions), times the devices
/// of a lane that need other sizes than the one before them.
std::vector<Bytes> peak_memories(const Schedule& schedule, const std::vector<DeviceMemory>& memory);

/// Returns the devices that need more memory than they have, largest shortage first, each with the
/// first of its stages; ties are in the order of lanes and replicas. If every device holds one
/// stage, the result equals memory_shortages(costs). O(actions * devices of a lane). Requires:
/// `costs` are those of the schedule's plan.
std::vector<MemoryShortage> memory_shortages(const Schedule& schedule, const PlanCost& costs);
/// Returns the same from device_memory() and peak_memories(). O(devices log devices).
std::vector<MemoryShortage> memory_shortages(const std::vector<DeviceMemory>& memory,
                                             const std::vector<Bytes>& peaks);

}  // namespace dapple::simulate
