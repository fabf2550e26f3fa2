// Random problems of task orders: even and uneven stages, one or several on a device, with and
// without transfers, memory from just enough to plenty, and now and then something to follow the
// last task.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dapple/schedule_search/tasks/task_order.h"
#include "dice.h"

namespace dapple::small {

struct TaskSizes {
  std::int32_t most_stages = 3;
  std::int32_t most_micro_batches = 5;
  bool has_chunks = true;  // some problems have two stages a device
};

/// Device of stage s: its own; or with two stages each, in turn or there and back (a V).
inline std::vector<DeviceIndex> random_devices(Dice& dice, std::int32_t stages, bool has_chunks) {
  std::vector<DeviceIndex> devices;
  const bool is_paired = has_chunks && stages % 2 == 0 && dice.chance(50);
  const bool is_v = dice.chance(50);
  const std::int32_t half = stages / 2;
  for (std::int32_t s = 0; s < stages; ++s) {
    const std::int32_t paired = s < half ? s : is_v ? stages - 1 - s : s - half;
    devices.push_back({is_paired ? paired : s});
  }
  return devices;
}

inline schedule_search::TaskStage random_stage(Dice& dice, bool is_split,
                                               std::int64_t most_transfer) {
  schedule_search::TaskStage stage;
  stage.forward = {dice.roll(1, 9)};
  stage.backward = {dice.roll(1, 9)};
  stage.send_forward = {dice.roll(0, most_transfer)};
  stage.send_backward = {dice.roll(0, most_transfer)};
  stage.forward_memory = {dice.roll(1, 4)};
  if (is_split) {
    stage.weight_gradient = {dice.roll(1, 9)};
    // Mostly a backward gives some back; here and there it takes more.
    stage.weight_gradient_memory = {-dice.roll(0, stage.forward_memory.count + 1)};
  }
  stage.backward_memory = Bytes{} - stage.forward_memory - stage.weight_gradient_memory;
  return stage;
}

inline schedule_search::TaskProblem random_tasks(Dice& dice, const TaskSizes& sizes) {
  schedule_search::TaskProblem problem;
  const auto stages = static_cast<std::int32_t>(dice.roll(1, sizes.most_stages));
  problem.num_micro_batches = static_cast<std::int32_t>(dice.roll(1, sizes.most_micro_batches));
  problem.split_backward = dice.chance(75);
  problem.objective = dice.chance(60) ? schedule_search::OrderObjective::Span
                                      : schedule_search::OrderObjective::Makespan;
  const std::vector<DeviceIndex> devices = random_devices(dice, stages, sizes.has_chunks);
  const std::int64_t most_transfer = dice.chance(50) ? 0 : 5;
  const bool is_even = dice.chance(40);
  for (std::int32_t s = 0; s < stages; ++s) {
    const bool repeats = is_even && s > 0;
    problem.stages.push_back(repeats ? problem.stages[0]
                                     : random_stage(dice, problem.split_backward, most_transfer));
    problem.stages.back().device = devices[static_cast<std::size_t>(s)];
  }
  const DeviceIndex last = *std::max_element(devices.begin(), devices.end());
  problem.memory_limits.resize(last.position() + 1);
  problem.memory_limits = least_memory(problem);
  for (Bytes& limit : problem.memory_limits) {
    limit += {dice.roll(0, 4 * (problem.num_micro_batches - 1))};
  }
  if (dice.chance(40)) {
    for (std::size_t d = 0; d < problem.memory_limits.size(); ++d) {
      problem.after_last.push_back({dice.roll(0, 12)});
    }
  }
  return problem;
}

}  // namespace dapple::small
