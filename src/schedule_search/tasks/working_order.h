// An order under change: one task moved at a time, run again only from the first moment at which
// anything can differ.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule_search/tasks/holding_rules.h"
#include "schedule_search/tasks/task_graph.h"

namespace dapple::schedule_search {

/// How good an order is: by the memory that it lacks for what waits, by its objective, then by the
/// sum of all devices' objectives.
struct OrderValue {
  std::int64_t excess = kNever;
  std::int64_t worst = kNever;
  std::int64_t sum = kNever;

  friend auto operator<=>(const OrderValue&, const OrderValue&) = default;
};

/// On a device, the tasks in [begin, middle) and those in [middle, end) change places.
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
  /// Requires: an order that is legal and ends; it may lack memory for what waits.
  WorkingOrder(const TaskGraph& graph, const HoldingRules& rules, const Words& words);

  const OrderValue& value() const { return value_; }
  Words words() const;

  std::int32_t length(std::int32_t device) const {
    return static_cast<std::int32_t>(order_[at(device)].size());
  }
  const TaskSymbol& kind_at(TaskPlace place) const {
    return graph_.kind_of(order_[at(place.device)][at(place.position)]);
  }
  /// How long the device waits in front of a task.
  std::int64_t gap_before(TaskPlace place) const;

  /// The tasks that make the objective as large as it is: each starts when the one named after it
  /// allows, the first named ends last. Of several devices the lowest. O(tasks).
  std::vector<TaskPlace> critical_tasks() const;

  /// Makes a move. False, and nothing is changed, if all its tasks are alike, if memory does not
  /// take it, or if it brings a backward before its forward or a weight gradient before its
  /// backward on the device. Else run() must follow. O(tasks moved).
  /// Requires: begin < middle < end.
  bool make(TaskMove move);

  /// What the order is worth after the move; nothing at a deadlock or if it is known to be above
  /// `limit` before it is run to its end. keep() or undo() must follow. O(tasks that start after
  /// the change), and the device's tasks where what waits may lack memory.
  std::optional<OrderValue> run(const OrderValue& limit);
  void keep();
  void undo();

 private:
  struct DeviceRun {
    std::int32_t resumed = 0;  // the first place that was run again
    std::int32_t next = 0;
    std::int64_t free_from = 0;
    std::int64_t left = 0;  // work from `next` on
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
  std::vector<std::vector<std::int32_t>> order_;  // by device, ids
  std::vector<std::vector<std::int64_t>> held_;   // memory after so many tasks
  std::vector<std::vector<std::int64_t>> busy_;   // work of so many tasks
  std::vector<std::int64_t> starts_;              // by id, of the kept order
  OrderValue value_;

  Holdings holdings_;  // where what waits may lack memory
  Holdings trial_holdings_;

  TaskMove move_;
  OrderValue attempted_;
  std::int64_t moment_ = 0;  // starts before it are those of the kept order
  std::int64_t attempt_ = 0;
  std::vector<std::int64_t> ran_in_;  // by id, the attempt that ran it last
  std::vector<std::int64_t> trial_starts_;
  std::vector<DeviceRun> runs_;
  std::vector<std::int32_t> awake_;
  std::vector<std::int32_t> next_number_;  // by symbol, of a range being renumbered; else all
};

}  // namespace dapple::schedule_search
