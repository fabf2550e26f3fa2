// An order while it is being built, task after task on each device.
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

  /// When the input of the symbol's next task is there; kNever if that is not known, or if all have
  /// passed.
  std::int64_t arrival(Symbol symbol) const;

  /// True if there is memory for the symbol's next task, and no more would be in flight than may
  /// be. A forward also leaves room for the later stages of the device that have nothing in flight,
  /// so that the oldest micro-batch can go through, and for backwards that take memory; weight
  /// gradients that wait count as given back.
  bool fits(Symbol symbol) const;

  /// The weight gradient that waits and gives back most, of the lowest stage; none: -1.
  Symbol waiting_weight(std::int32_t device) const;

  /// True of a backward that nothing waits for but its weight gradient.
  bool is_last_need(Symbol symbol) const;

  /// How long the device has waited since its first start, and that of the device that has waited
  /// most; both with what the objective counts from.
  std::int64_t idle(std::int32_t device) const;
  std::int64_t most_idle() const;

  /// Runs the symbol's next task from `start` on. Requires: start >= free_from and arrival, fits.
  void put(Symbol symbol, std::int64_t start);

  /// The objective, and the sum of all devices'. Requires: all tasks are put.
  std::int64_t worst() const;
  std::int64_t sum() const;

 private:
  struct DeviceState {
    std::int64_t free_from = 0;
    std::int64_t worked = 0;
    std::int64_t memory = 0;
    std::int64_t reclaimable = 0;  // by weight gradients that wait
    std::int32_t weights_waiting = 0;
  };

  /// What the oldest micro-batch of the device takes yet at most, once a forward of the stage runs:
  /// forwards on the later stages that have nothing in flight, and backwards that take memory.
  std::int64_t reserve(std::int32_t device, std::int32_t stage) const;
  std::int64_t value(std::int32_t device) const;

  const TaskGraph& graph_;
  std::vector<std::int32_t> passed_;  // tasks put, by symbol
  std::vector<std::int64_t> ends_;    // by task
  std::vector<DeviceState> devices_;
  Words words_;
};

}  // namespace dapple::schedule_search
