#include "dapple/simulate/device_memory.h"

#include <algorithm>

namespace dapple::simulate {
namespace {

DeviceMemory memory_of(const Lane& lane, LaneIndex index, std::size_t replica,
                       const PlanCost& costs) {
  DeviceMemory memory;
  memory.lane = index;
  Bytes workspace;
  for (const StageIndex stage : lane.stages) {
    const ReplicaCost& cost = costs.stages[stage.position()].replicas[replica];
    memory.device = cost.device;
    memory.limit = cost.memory_limit;
    memory.fixed += cost.memory.fixed() - cost.memory.workspace;
    workspace = std::max(workspace, cost.memory.workspace);
    memory.stages.push_back({.stage = stage,
                             .per_micro_batch = cost.memory.per_micro_batch,
                             .recompute_stash = cost.memory.recompute_stash});
  }
  memory.fixed += workspace;
  return memory;
}

}  // namespace

std::vector<DeviceMemory> device_memory(const Schedule& schedule, const PlanCost& costs) {
  std::vector<DeviceMemory> memory;
  for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
    const Lane& lane = schedule.lanes[i];
    for (std::size_t d = 0; d < lane.devices.size(); ++d) {
      memory.push_back(memory_of(lane, index_at<LaneIndex>(i),
                                 static_cast<std::size_t>(lane.replica) + d, costs));
    }
  }
  return memory;
}

std::vector<Bytes> peak_memories(const Schedule& schedule,
                                 const std::vector<DeviceMemory>& memory) {
  std::vector<Bytes> peaks;
  const DeviceMemory* before = nullptr;
  for (const DeviceMemory& here : memory) {
    const bool is_alike = before != nullptr && before->lane == here.lane &&
                          before->fixed == here.fixed && before->stages == here.stages;
    peaks.push_back(is_alike ? peaks.back()
                             : peak_memory(schedule.lanes[here.lane.position()], here));
    before = &here;
  }
  return peaks;
}

std::vector<MemoryShortage> memory_shortages(const Schedule& schedule, const PlanCost& costs) {
  const std::vector<DeviceMemory> memory = device_memory(schedule, costs);
  return memory_shortages(memory, peak_memories(schedule, memory));
}

std::vector<MemoryShortage> memory_shortages(const std::vector<DeviceMemory>& memory,
                                             const std::vector<Bytes>& peaks) {
  std::vector<MemoryShortage> shortages;
  for (std::size_t d = 0; d < memory.size(); ++d) {
    if (peaks[d] <= memory[d].limit) continue;
    shortages.push_back({.device = memory[d].device,
                         .stage = memory[d].stages.front().stage,
                         .needed = peaks[d],
                         .limit = memory[d].limit});
  }
  std::stable_sort(shortages.begin(), shortages.end(),
                   [](const auto& a, const auto& b) { return a.missing() > b.missing(); });
  return shortages;
}

}  // namespace dapple::simulate
