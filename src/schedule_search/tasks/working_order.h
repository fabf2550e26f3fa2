// An order that is changed one move at a time and run again only from the first time at which its
// starts can differ.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule_search/tasks/holding_rules.h"
#include "schedule_search/tasks/task_graph.h"

namespace dapple::schedule_search {

/// The value of an order: the memory by which it exceeds the limits, then its objective, then the
/// sum of all devices' objectives.
struct OrderValue {
  std::int64_t excess = kNever;
  std::int64_t worst = kNever;
  std::int64_t sum = kNever;

  friend auto operator<=>(const OrderValue&, const OrderValue&) = default;
};

/// Exchanges the tasks in [begin, middle) and those in [middle, end) of a device.
struct TaskMove {
  std::int32_t device = 0;
  std::int32_t begin = 0;
  std::int32_t middle = 0;
  std::int32_t end = 0;
};

struct TaskPlace {
  std::int32_t device = 0;
  std::int32_t position = 0;
};

class WorkingOrder {
 public:
  /// Requires: an order that is legal and completes; it may exceed the holding limits.
  WorkingOrder(const TaskGraph& graph, const HoldingRules& rules, const Words& words);

  const OrderValue& value() const { return value_; }
  Words words() const;

  std::int32_t length(std::int32_t device) const {
    return static_cast<std::int32_t>(order_[at(device)].size());
  }
  const TaskSymbol& kind_at(TaskPlace place) const {
    return graph_.kind_of(order_[at(place.device)][at(place.position)]);
  }
  /// Returns how long the device waits before a task.
  std::int64_t gap_before(TaskPlace place) const;

  /// Returns a chain of tasks that determines the objective, from the last to the first: each
  /// starts when the next one in the result allows. If several devices end last, the lowest.
  /// O(tasks).
  std::vector<TaskPlace> critical_tasks() const;

  /// Makes a move. Returns false, and changes nothing, if all its tasks are of one kind and stage,
  /// if the memory limit is exceeded, or if a backward would precede its forward or a weight
  /// gradient its backward on the device. Otherwise run() must follow. O(tasks moved).
  /// Requires: begin < middle < end.
  bool make(TaskMove move);

  /// Returns the value of the order after the move, or nothing at a deadlock or if the value is
  /// known to exceed `limit` before the order is run to its end. keep() or undo() must follow.
  /// O(tasks that start after the change), plus the device's tasks if holding limits may bind.
  std::optional<OrderValue> run(const OrderValue& limit);
  void keep();
  void undo();

 private:
  struct DeviceRun {
    // The first position that was run again.
    std::int32_t resumed = 0;
    std::int32_t next = 0;
    std::int64_t free_from = 0;
    // The work from `next` on.
    std::int64_t left = 0;
  };

  bool is_varied(TaskMove move) const;
  bool exchange(TaskMove move);
  std::int32_t first_from(std::int32_t device, std::int64_t moment, std::int32_t below) const;
  void resume(std::int64_t moment, std::int32_t changed_device, std::int32_t changed_place);
  bool run_all(std::int64_t limit);
  bool advance(std::int32_t device, std::int64_t limit);
  std::int64_t ready(std::int32_t id) const;
  OrderValue value_of_runs() const;
  void refresh_prefixes(std::int32_t device, std::int32_t from);
  void count_trial_holdings();

  const TaskGraph& graph_;
  const HoldingRules& rules_;
  // By device, the ids of its tasks in order.
  std::vector<std::vector<std::int32_t>> order_;
  // By device, the memory in use and the work after each number of tasks.
  std::vector<std::vector<std::int64_t>> held_;
  std::vector<std::vector<std::int64_t>> busy_;
  // By id, the starts in the kept order.
  std::vector<std::int64_t> starts_;
  OrderValue value_;

  // The holdings of the kept and of the changed order, if holding limits may bind.
  Holdings holdings_;
  Holdings trial_holdings_;

  TaskMove move_;
  OrderValue attempted_;
  // Starts before this time are those of the kept order.
  std::int64_t moment_ = 0;
  std::int64_t attempt_ = 0;
  // By id, the last attempt that ran the task.
  std::vector<std::int64_t> ran_in_;
  std::vector<std::int64_t> trial_starts_;
  std::vector<DeviceRun> runs_;
  std::vector<std::int32_t> awake_;
  // By symbol, the next number in a range being renumbered; otherwise the number of micro-batches.
  std::vector<std::int32_t> next_number_;
};

}  // namespace dapple::schedule_search
