// The tasks of a problem as integers, for code that builds and runs many orders.
//
// A symbol is a kind of task on a stage: first the forwards of all stages, then the backwards, then
// the weight gradients. A device's order is a word of symbols, whose n-th occurrence of a symbol is
// the task of micro-batch n, as micro-batches pass in the order of their numbers. A task's id is
// symbol * M + micro-batch. Times are in nanoseconds.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "dapple/schedule_search/tasks/task_order.h"

namespace dapple::schedule_search {

constexpr std::size_t at(std::int32_t position) {
  return static_cast<std::size_t>(position);
}

inline constexpr std::int64_t kNotRun = -1;
/// Later than any moment of an order. Unlike Duration::infinite() it may be added to: the sum
/// of four of them does not overflow.
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 4;

struct TaskSymbol {
  TaskKind kind = TaskKind::Forward;
  std::int32_t stage = 0;
  std::int32_t device = 0;
  std::int64_t duration = 0;
  std::int64_t memory = 0;
  // The symbol whose task of the same micro-batch must have ended `lag` earlier; -1: none.
  std::int32_t predecessor = -1;
  std::int64_t lag = 0;
  // The symbol, possibly on another device, whose task may wait for it; -1: none.
  std::int32_t successor = -1;
};

using Symbol = std::int32_t;
using Words = std::vector<std::vector<Symbol>>;  // by device

class TaskGraph {
 public:
  explicit TaskGraph(const TaskProblem& problem);

  std::int32_t device_count() const { return static_cast<std::int32_t>(limits_.size()); }
  std::int32_t stage_count() const { return stages_; }
  std::int32_t micro_batches() const { return micro_batches_; }
  std::size_t task_count() const { return kinds_.size() * at(micro_batches_); }
  bool is_split() const { return is_split_; }

  const std::vector<TaskSymbol>& kinds() const { return kinds_; }
  Symbol forward(std::int32_t stage) const { return stage; }
  Symbol backward(std::int32_t stage) const { return stages_ + stage; }
  /// Requires: is_split().
  Symbol weight(std::int32_t stage) const { return 2 * stages_ + stage; }

  std::int32_t id_of(Task task) const {
    const auto symbol = static_cast<std::int32_t>(task.kind) * stages_ + task.stage.value;
    return symbol * micro_batches_ + task.micro_batch;
  }
  const TaskSymbol& kind_of(std::int32_t id) const { return kinds_[at(id / micro_batches_)]; }

  /// Returns when a task's input is there; kNotRun if its predecessor has not run.
  std::int64_t ready_time(std::int32_t id, const std::vector<std::int64_t>& ends) const {
    const TaskSymbol& kind = kind_of(id);
    if (kind.predecessor < 0) return 0;
    const std::int64_t end = ends[at(kind.predecessor * micro_batches_ + id % micro_batches_)];
    return end == kNotRun ? kNotRun : end + kind.lag;
  }

  /// Returns the stages of a device, ascending.
  const std::vector<std::int32_t>& stages_of(std::int32_t device) const {
    return stages_of_[at(device)];
  }
  /// Returns the maximum number of micro-batches in flight on a stage, independently of memory.
  std::int32_t cap(std::int32_t stage) const { return caps_[at(stage)]; }
  /// Whether a micro-batch is no longer in flight after a task of this kind.
  bool ends_flight(TaskKind kind) const {
    return kind == (is_split_ ? TaskKind::WeightGradient : TaskKind::Backward);
  }
  Symbol last_part(std::int32_t stage) const { return is_split_ ? weight(stage) : backward(stage); }
  std::int64_t limit(std::int32_t device) const { return limits_[at(device)]; }
  std::int64_t work(std::int32_t device) const { return work_[at(device)]; }
  /// Returns the earliest start of the device's first forward, which is its first task, and starts
  /// then, in every order.
  std::int64_t first_start(std::int32_t device) const { return first_start_[at(device)]; }
  /// Returns the time that must follow the device's last task.
  std::int64_t after_last(std::int32_t device) const { return after_last_[at(device)]; }
  /// Returns the part of a device's objective that is neither work nor idle time: the time before
  /// its first start, if that counts, and the time that must follow its last task.
  std::int64_t offset(std::int32_t device) const {
    return after_last(device) + (objective_ == OrderObjective::Span ? 0 : first_start(device));
  }

  TaskOrder to_order(const Words& words) const;
  /// The inverse of to_order(). Requires: tasks of the problem; those of one kind and stage in the
  /// order of their micro-batches.
  Words to_words(const TaskOrder& order) const;

 private:
  void add_symbols(const TaskProblem& problem, TaskKind kind);

  std::int32_t stages_ = 0;
  std::int32_t micro_batches_ = 0;
  bool is_split_ = true;
  OrderObjective objective_ = OrderObjective::Span;
  std::vector<TaskSymbol> kinds_;  // by symbol
  std::vector<std::vector<std::int32_t>> stages_of_;
  std::vector<std::int64_t> limits_;
  std::vector<std::int32_t> caps_;  // by stage
  std::vector<std::int64_t> work_;
  std::vector<std::int64_t> first_start_;
  std::vector<std::int64_t> after_last_;
};

}  // namespace dapple::schedule_search
