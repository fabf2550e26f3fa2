// The order of forwards, backwards and weight gradients on each device of a pipeline whose costs
// and memory are known: the problem, an order with its times, the rules, the evaluation. Alone on
// figures; a plan is nothing that it knows of.
//
// Sources: Zero Bubble Pipeline Parallelism (ICLR'24): the split backward, memory as sums of each
// task's change, the span of a device. Interleaving (Megatron-LM, SC'21) and ZB-V as several stages
// of one device. DAPPLE (PPoPP'21): at most K micro-batches in flight, as a memory limit of K
// slots.
//
// Departures: 1. every stage has its own figures, and a boundary its own time in each direction;
// 2. a device may hold several stages, which then share its memory; 3. tasks start as early as
// their order allows, so an order has one span; 4. micro-batches pass every stage in the order of
// their numbers. They are alike, so nothing is lost: give the k-th forward of a stage, whichever it
// was, to micro-batch k, and so for backwards and weight gradients. The k-th input of a stage is
// there once k micro-batches have passed the stage before, so each start remains allowed, and
// memory counts tasks, not numbers.
//
// Times are whole nanoseconds, memory is in bytes or in any other whole unit used throughout.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/index.h"
#include "dapple/core/quantity.h"

namespace dapple::schedule_search {

enum class TaskKind : std::uint8_t {
  Forward,
  Backward,        // of the input alone where the backward is split, of all where it is not
  WeightGradient,  // only where the backward is split
};

struct Task {
  TaskKind kind = TaskKind::Forward;
  StageIndex stage;
  std::int32_t micro_batch = 0;

  friend bool operator==(const Task&, const Task&) = default;
};

/// "F0", "2B5": the stage is said where `with_stage` is set.
std::string to_text(Task task, bool with_stage);

/// What one micro-batch costs on one stage. The memory of a device changes by `forward_memory` when
/// a forward starts, and by the others, which are negative where they give back, when their task
/// ends; a task that takes memory has it from its start on.
struct TaskStage {
  DeviceIndex device;
  Duration forward;
  Duration backward;
  Duration weight_gradient;
  Duration send_forward;   // activations to the next stage; of the last stage unused
  Duration send_backward;  // gradients to the stage before; of the first stage unused
  Bytes forward_memory;
  Bytes backward_memory;
  Bytes weight_gradient_memory;
  std::int32_t most_in_flight = std::numeric_limits<std::int32_t>::max();  // micro-batches
};

/// A device ends when its last task has, and what must follow that.
enum class OrderObjective : std::uint8_t {
  Span,      // the longest time of any device from its first start to its end
  Makespan,  // from the first start of all to the last end of all
};

/// What a stage holds of a replica's memory. In flight is a micro-batch from the start of its
/// forward to the end of its weight gradient, or of its backward where that is not split: it holds
/// `by_forward` all the time, and `by_backward` too from the start of its backward on. What waits
/// at the boundaries needs `before` for each micro-batch that the stage before has in flight at
/// most beyond what this one has, and `behind` for each that this one has beyond the stage behind.
struct StageHolding {
  StageIndex stage;
  Bytes by_forward;
  Bytes by_backward;
  Bytes before;
  Bytes behind;
};

/// That what the stages of a device hold together has room: the most at a time of the tasks, and
/// what waits. A device may have several such limits: one for each replica that it stands for.
struct HoldingLimit {
  DeviceIndex device;
  Bytes room;                        // below zero: nothing fits
  std::vector<StageHolding> stages;  // of the device
};

struct TaskProblem {
  std::vector<TaskStage> stages;     // in the order of the pipeline
  std::vector<Bytes> memory_limits;  // of each device
  std::int32_t num_micro_batches = 1;
  bool split_backward = true;
  OrderObjective objective = OrderObjective::Span;
  std::vector<HoldingLimit> holding_limits = {};  // beside the devices' memory limits
  /// What must follow the last task of each device before it is done: reductions of gradients and
  /// the optimizer's step. Empty: nothing.
  std::vector<Duration> after_last = {};
};

/// Faults of a problem, each named: no stages or devices, figures below zero or so large that sums
/// could overflow, weight gradients without a split backward, a micro-batch that leaves memory
/// behind. Nothing below is defined for a problem that has any. O(stages + devices).
std::vector<Violation> validate(const TaskProblem& problem);

/// The least memory that any order needs on each device: a micro-batch's forwards there, and then
/// its backwards and weight gradients in turn. With at least so much on every device some order
/// exists (one micro-batch after the other, so that none waits), with less on any there is none.
/// O(stages).
std::vector<Bytes> least_memory(const TaskProblem& problem);

/// Whether some order exists: one micro-batch after the other fits the memory of the devices and
/// what may be held. O(stages + limits).
bool has_order(const TaskProblem& problem);

/// Per device, its tasks in the order in which they run.
using TaskOrder = std::vector<std::vector<Task>>;

/// When each task of an order starts, in the same places.
using TaskStarts = std::vector<std::vector<Duration>>;

struct OrderTimes {
  TaskStarts starts;
  Duration span;              // OrderObjective::Span
  Duration makespan;          // OrderObjective::Makespan
  std::vector<Task> waiting;  // at a deadlock: the first task of each device that never starts

  Duration objective(OrderObjective which) const {
    return which == OrderObjective::Span ? span : makespan;
  }
};

/// Runs an order: a task starts once the task before it on its device has ended and its input is
/// there. At a deadlock the starts end early and the durations count what ran. O(tasks).
/// Requires: a valid problem, an order for its devices with stages and micro-batches that it has.
OrderTimes run_order(const TaskProblem& problem, const TaskOrder& order);

/// Faults of an order with its starts, rule by rule and task by task: every stage runs the tasks of
/// every micro-batch once, on its device, one at a time; a forward starts when the stage before has
/// ended and sent, a backward when the stage behind has, and the forward of its own; a weight
/// gradient after its backward; no prefix of a device's tasks takes more memory than it has, no
/// stage has more in flight than it may, and what is held has room. Knows nothing of how orders are
/// made or run. O(tasks * limits per device).
std::vector<Violation> check_order(const TaskProblem& problem, const TaskOrder& order,
                                   const TaskStarts& starts);

}  // namespace dapple::schedule_search
