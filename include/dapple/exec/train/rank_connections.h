// What connects the devices of a job on GPUs, by their numbers.
#pragma once

#include <vector>

#include "dapple/core/index.h"
#include "dapple/exec/message/message_memory.h"
#include "dapple/exec/train/training_job.h"
#include "dapple/schedule/device_schedule.h"

namespace dapple::exec {

/// Returns the schedule of each of job.numbers(), in which all devices have these numbers.
/// O(numbers * actions * peers).
std::vector<DeviceSchedule> schedules_of_numbers(const TrainingJob& job);

/// Returns the connections of a device: those of its schedule, and of the groups of ranks that it
/// is in. Tensors that are re-sharded pass through the host, so they need none.
DeviceConnections connections_of(const TrainingJob& job, DeviceIndex number);

}  // namespace dapple::exec
