// Lower bounds, for any order, on the time from the first start to each task and on the time from
// each task to the last end.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule_search/tasks/task_graph.h"

namespace dapple::schedule_search {

/// The heads and tails by task: every start is at least `heads` after the first start, and every
/// relevant end at least `tails` after the task's end; what must follow a device's last task is
/// part of its end. A task that affects no relevant end has a tail of -kNever.
struct HeadsAndTails {
  std::vector<std::int64_t> heads;
  std::vector<std::int64_t> tails;
};

/// The restrictions that memory puts on the tasks of one stage.
struct MemoryNeeds {
  // The maximum number of forwards whose backward has not ended.
  std::int32_t most_in_flight = 1;
  // By micro-batch, the number of weight gradients that must end before its forward.
  std::vector<std::int32_t> weights_before;
};

/// Returns the needs by stage. A micro-batch in flight on a stage is also in flight on all earlier
/// stages of the device. O(stages * M).
std::vector<MemoryNeeds> memory_needs(const TaskGraph& graph);

/// Returns the minimum number of weight gradients that must have ended before forward `n` of a
/// stage can have its memory if `backwards` backwards have ended; backwards + 1 if no number
/// suffices.
std::int32_t weights_needed(const TaskGraph& graph, std::int32_t stage, std::int32_t n,
                            std::int32_t backwards);

/// Returns heads and tails that count from the first start of device `of` to its own last end, or,
/// if `of` is -1, from the first start to the last end of all devices. They hold for orders with an
/// objective of at most `goal`, which limits a device's idle time. O(stages * M), times the number
/// of weight gradients that compensate for a backward.
HeadsAndTails heads_and_tails(const TaskGraph& graph, const std::vector<MemoryNeeds>& needs,
                              std::int32_t of, std::int64_t goal);

}  // namespace dapple::schedule_search
