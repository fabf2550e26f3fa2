// How long every task must wait from the first start on, and how much must follow it to the last
// end, in any order.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule_search/tasks/task_graph.h"

namespace dapple::schedule_search {

/// By task: no start is earlier than `heads` after the first start, no end that counts earlier than
/// `tails` after the task's end; what must follow a device's last task is part of its end. What has
/// no bearing on an end that counts has a tail of -kNever.
struct HeadsAndTails {
  std::vector<std::int64_t> heads;
  std::vector<std::int64_t> tails;
};

/// What memory asks of the tasks of one stage.
struct MemoryNeeds {
  std::int32_t most_in_flight = 1;           // forwards whose backward has not ended
  std::vector<std::int32_t> weights_before;  // by micro-batch: W that end before its forward
};

/// By stage. A micro-batch in flight on a stage is so on all earlier ones of the device too.
/// O(stages * M).
std::vector<MemoryNeeds> memory_needs(const TaskGraph& graph);

/// The least weight gradients that must have ended before forward `n` of a stage can have its
/// memory if `backwards` backwards have; more than those where no number of them is enough.
std::int32_t weights_needed(const TaskGraph& graph, std::int32_t stage, std::int32_t n,
                            std::int32_t backwards);

/// Counted from the first start of the device `of` to its own last end, or, where `of` is -1, from
/// the first start of all to the last end of all. Of orders with an objective of at most `goal`
/// only, which is what a device's idle time is limited by. O(stages * M), times the weight
/// gradients that make up for a backward.
HeadsAndTails heads_and_tails(const TaskGraph& graph, const std::vector<MemoryNeeds>& needs,
                              std::int32_t of, std::int64_t goal);

}  // namespace dapple::schedule_search
