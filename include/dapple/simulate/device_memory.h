// What the devices of a schedule hold, and where it is too much. Peaks follow from the order of
// computations alone.
#pragma once

#include <vector>

#include "dapple/cost/memory.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/schedule/schedule.h"
#include "dapple/timeline/timeline.h"

namespace dapple::simulate {

/// One entry per used device, lane by lane. The stages of a device share one workspace, as it
/// computes one thing at a time; all else that does not pass with micro-batches adds up.
/// O(devices * stages per device). Requires: `costs` are those of the schedule's plan.
std::vector<DeviceMemory> device_memory(const Schedule& schedule, const PlanCost& costs);

/// The most that each of these devices holds at a time, in their order. O(actions), times the
/// devices of a lane that need other sizes than the one before them.
std::vector<Bytes> peak_memories(const Schedule& schedule, const std::vector<DeviceMemory>& memory);

/// Devices that would need more than they have, worst first, with the first of their stages; ties
/// in the order of lanes and replicas. Where every device holds one stage this is the same as
/// memory_shortages(costs). O(actions * devices of a lane). Requires: as above.
std::vector<MemoryShortage> memory_shortages(const Schedule& schedule, const PlanCost& costs);
/// The same from device_memory() and peak_memories(). O(devices log devices).
std::vector<MemoryShortage> memory_shortages(const std::vector<DeviceMemory>& memory,
                                             const std::vector<Bytes>& peaks);

}  // namespace dapple::simulate
