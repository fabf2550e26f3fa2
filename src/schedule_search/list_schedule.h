// Orders built by rules, in two ways.
//
// By starts: of all devices, the one whose next task starts first decides, by its rule, and knows
// what has been decided before. By waves: the backwards of one micro-batch after the other, from
// the last stage to the first, so that each device knows when its backward arrives and can fill
// what is before it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule_search/tasks/task_graph.h"
#include "schedule_search/tasks/working_order.h"

namespace dapple::schedule_search {

/// What a device does about a task that arrives within the time of another, less urgent one that
/// could start now.
enum class DelayPolicy : std::uint8_t {
  None,     // starts what can start
  Fair,     // waits if that takes less time than the task would else be late
  Thrifty,  // waits if it has still waited no longer then than the device that has waited most
  Endless,  // waits
};

struct DeviceRule {
  DelayPolicy delay_policy = DelayPolicy::None;
  bool backward_first = true;       // of a forward and a backward that can both start
  bool later_stage_first = true;    // of forwards of several stages that can start
  std::int32_t stored_weights = 0;  // with more waiting, weight gradients go before forwards
  std::int32_t eager_weights = 0;   // with more waiting, they go before backwards too

  friend bool operator==(const DeviceRule&, const DeviceRule&) = default;
};

struct ListRule {
  bool by_waves = false;
  std::vector<std::int32_t> depths;  // by stage: most forwards whose backward has not started
  // By stage: with so many forwards not yet taken over by the stage behind, one that would delay a
  // backward is put off to the next wave.
  std::vector<std::int32_t> leads;
  std::vector<DeviceRule> devices;

  friend bool operator==(const ListRule&, const ListRule&) = default;
};

struct ListSchedule {
  Words words;
  OrderValue value;
};

/// An order by the rule, or nothing where waves of that depth do not fit memory. By starts there is
/// always one: where no device can go on by its own rule, depths are passed over. What waits at the
/// boundaries is not looked at, and the value has no excess for it.
/// Ties go to the lower device, the lower stage. O(tasks * devices).
/// Requires: each device has its least memory.
std::optional<ListSchedule> list_schedule(const TaskGraph& graph, const ListRule& rule);

}  // namespace dapple::schedule_search
