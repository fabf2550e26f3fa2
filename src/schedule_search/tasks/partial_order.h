// An order under construction, to which tasks are appended on each device.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule_search/tasks/task_graph.h"

namespace dapple::schedule_search {

class PartialOrder {
 public:
  explicit PartialOrder(const TaskGraph& graph);

  const TaskGraph& graph() const { return graph_; }
  const TaskSymbol& kind(Symbol symbol) const { return graph_.kinds()[at(symbol)]; }
  const Words& words() const { return words_; }

  std::int32_t passed(Symbol symbol) const { return passed_[at(symbol)]; }
  bool is_done(Symbol symbol) const { return passed(symbol) == graph_.micro_batches(); }
  std::int64_t free_from(std::int32_t device) const { return devices_[at(device)].free_from; }
  std::int32_t weights_waiting(std::int32_t device) const {
    return devices_[at(device)].weights_waiting;
  }

  /// Returns when the input of the symbol's next task is there; kNever if that is not known or if
  /// all of its tasks have run.
  std::int64_t arrival(Symbol symbol) const;

  /// Whether the symbol's next task fits memory and the limit on the number in flight. A forward
  /// must also leave memory for the later stages of the device that have nothing in flight, so that
  /// the oldest micro-batch can pass, and for backwards that take memory; the memory that waiting
  /// weight gradients will release counts as released.
  bool fits(Symbol symbol) const;

  /// Returns the waiting weight gradient that releases most memory, of equals that of the lowest
  /// stage; -1 if there is none.
  Symbol waiting_weight(std::int32_t device) const;

  /// Whether the symbol's tasks are backwards on which nothing but their weight gradient depends.
  bool is_last_need(Symbol symbol) const;

  /// Returns the idle time of a device since its first start, or the largest of any device; both
  /// include the parts of the objective that are neither work nor idle time.
  std::int64_t idle(std::int32_t device) const;
  std::int64_t most_idle() const;

  /// Runs the symbol's next task from `start` on. Requires: start >= free_from and arrival; it
  /// fits.
  void put(Symbol symbol, std::int64_t start);

  /// Returns the objective, or the sum of all devices' objectives. Requires: all tasks are put.
  std::int64_t worst() const;
  std::int64_t sum() const;

 private:
  struct DeviceState {
    std::int64_t free_from = 0;
    std::int64_t worked = 0;
    std::int64_t memory = 0;
    // The memory that waiting weight gradients will release.
    std::int64_t reclaimable = 0;
    std::int32_t weights_waiting = 0;
  };

  /// Returns the memory that the device's oldest micro-batch will still need at most after a
  /// forward of the stage: for forwards on later stages that have nothing in flight, and for
  /// backwards that take memory.
  std::int64_t reserve(std::int32_t device, std::int32_t stage) const;
  std::int64_t value(std::int32_t device) const;

  const TaskGraph& graph_;
  // By symbol, the number of tasks put.
  std::vector<std::int32_t> passed_;
  // By task.
  std::vector<std::int64_t> ends_;
  std::vector<DeviceState> devices_;
  Words words_;
};

}  // namespace dapple::schedule_search
