// Orders built by rules, in one of two ways.
//
// By starts: among all devices, the one whose next task would start first decides by its rule, with
// knowledge of all earlier decisions. By waves: the backwards of one micro-batch after the other,
// from the last stage to the first, so that each device knows when its backward arrives and can
// fill the time before it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule_search/tasks/task_graph.h"
#include "schedule_search/tasks/working_order.h"

namespace dapple::schedule_search {

/// What a device does if a more urgent task will arrive before a less urgent one, which could start
/// now, would end.
enum class DelayPolicy : std::uint8_t {
  // Start the task that can start.
  None,
  // Wait if the waiting time is shorter than the delay of the urgent task otherwise.
  Fair,
  // Wait if the device's idle time then still does not exceed that of the most idle device.
  Thrifty,
  // Always wait.
  Endless,
};

struct DeviceRule {
  DelayPolicy delay_policy = DelayPolicy::None;
  // Whether a backward is preferred to a forward if both can start.
  bool backward_first = true;
  // Whether the later stage is preferred if forwards of several stages can start.
  bool later_stage_first = true;
  // If more weight gradients than this wait, they precede forwards.
  std::int32_t stored_weights = 0;
  // If more weight gradients than this wait, they precede backwards too.
  std::int32_t eager_weights = 0;

  friend bool operator==(const DeviceRule&, const DeviceRule&) = default;
};

struct ListRule {
  bool by_waves = false;
  // By stage, the maximum number of forwards whose backward has not started.
  std::vector<std::int32_t> depths;
  // By stage: while this many of its forwards have not been run by the next stage yet, a forward
  // that would delay a backward is postponed to the next wave.
  std::vector<std::int32_t> leads;
  std::vector<DeviceRule> devices;

  friend bool operator==(const ListRule&, const ListRule&) = default;
};

struct ListSchedule {
  Words words;
  OrderValue value;
};

/// Builds an order by the rule, or returns nothing if waves of that depth do not fit memory. By
/// starts there always is an order: depths are ignored while no device can continue by its own
/// rule. Boundary buffers are not considered, and the value has no excess for them. Ties go to the
/// lower device, then the lower stage. O(tasks * devices).
/// Requires: each device has its least memory.
std::optional<ListSchedule> list_schedule(const TaskGraph& graph, const ListRule& rule);

}  // namespace dapple::schedule_search
