#include "dapple/exec/train/rank_connections.h"

#include <cstdint>
#include <utility>

#include "exec/train/rank_collectives.h"

namespace dapple::exec {
std::vector<DeviceSchedule> schedules_of_numbers(const TrainingJob& job) {
  std::vector<DeviceSchedule> schedules;
  for (const DeviceSchedule& device : job.devices) {
    for (std::int64_t rank = 0; rank < job.ranks(); ++rank) {
      schedules.push_back(schedule_of_rank(job, device.device, rank));
    }
  }
  return schedules;
}

DeviceConnections connections_of(const TrainingJob& job, DeviceIndex number) {
  const DeviceIndex device{static_cast<std::int32_t>(number.value / job.ranks())};
  const std::int64_t rank = number.value % job.ranks();
  DeviceSchedule schedule = schedule_of_rank(job, device, rank);
  if (job.reshards()) schedule.actions.clear();
  DeviceConnections connections = connections_of(job.plan, schedule);
  connections.reductions.clear();
  for (auto& [members, sizes] : reduction_sizes(job.plan, job.schedule_of(device))) {
    std::vector<DeviceIndex> ranks = members;
    for (DeviceIndex& member : ranks) member = job.number_of(member, rank);
    connections.reductions[ranks] = sizes;
  }
  for (const std::vector<DeviceIndex>& members : members_of_groups(job, device, rank)) {
    // They are used with all of their sizes when devices warm up.
    connections.reductions[members].insert(
        Bytes{static_cast<std::int64_t>(members.size() * sizeof(float))});
    connections.scatters = true;
  }
  for (std::vector<DeviceIndex>& members : members_of_expert_groups(job, device, rank)) {
    connections.exchanges.insert(std::move(members));
  }
  return connections;
}

}  // namespace dapple::exec
