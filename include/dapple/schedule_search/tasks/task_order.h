// The order of forwards, backwards and weight gradients on each device of a pipeline with known
// costs and memory: the problem, orders with their times, the rules and the evaluation. It is
// independent of plans.
//
// Sources: Zero Bubble Pipeline Parallelism (ICLR'24): the split backward, memory as the sum of
// each task's change, the span of a device. Interleaving (Megatron-LM, SC'21) and ZB-V: several
// stages on one device. DAPPLE (PPoPP'21): at most K micro-batches in flight, as a memory limit of
// K slots.
//
// Departures: 1. every stage has its own costs, and a boundary its own time in each direction;
// 2. a device may hold several stages, which then share its memory; 3. tasks start as early as
// their order allows, so an order has one span; 4. micro-batches pass every stage in the order of
// their numbers. As micro-batches are alike, this loses nothing: assign the k-th forward of a
// stage, whichever micro-batch it had, to micro-batch k, and likewise backwards and weight
// gradients. The k-th input of a stage is there once k micro-batches have passed the preceding
// stage, so each start remains allowed, and memory counts tasks, not numbers.
//
// Times are whole nanoseconds; memory is in bytes or in any other whole unit used throughout.
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
  /// The input gradient alone if the backward is split, otherwise the whole backward.
  Backward,
  /// Exists only if the backward is split.
  WeightGradient,
};

struct Task {
  TaskKind kind = TaskKind::Forward;
  StageIndex stage;
  std::int32_t micro_batch = 0;

  friend bool operator==(const Task&, const Task&) = default;
};

/// Returns "F0", or with the stage "2B5" if `with_stage` is set.
std::string to_text(Task task, bool with_stage);

/// The costs of one micro-batch on one stage. The memory in use of a device changes by
/// `forward_memory` when a forward starts. It changes by `backward_memory` and
/// `weight_gradient_memory` when a task of that kind ends if the value is negative (memory is
/// released), or when it starts if the value is positive.
struct TaskStage {
  DeviceIndex device;
  Duration forward;
  Duration backward;
  Duration weight_gradient;
  /// Sends activations to the next stage; unused for the last stage.
  Duration send_forward;
  /// Sends gradients to the previous stage; unused for the first stage.
  Duration send_backward;
  Bytes forward_memory;
  Bytes backward_memory;
  Bytes weight_gradient_memory;
  /// The maximum number of micro-batches in flight.
  std::int32_t most_in_flight = std::numeric_limits<std::int32_t>::max();
};

/// The quantity to minimize. A device ends when its last task and the work that must follow it have
/// ended.
enum class OrderObjective : std::uint8_t {
  /// The longest time of any device from its first start to its end.
  Span,
  /// The time from the first start to the last end of all devices.
  Makespan,
};

/// The memory of a replica that a stage needs. A micro-batch is in flight from the start of its
/// forward to the end of its weight gradient, or of its backward if that is not split. Boundary
/// buffers hold the micro-batches that wait at the stage's boundaries.
struct StageHolding {
  StageIndex stage;
  /// Held for each micro-batch in flight.
  Bytes by_forward;
  /// Held additionally from the start of a micro-batch's backward on.
  Bytes by_backward;
  /// Boundary buffer for each micro-batch by which the previous stage's maximum number in flight
  /// exceeds that of this stage.
  Bytes before;
  /// Boundary buffer for each micro-batch by which this stage's maximum number in flight exceeds
  /// that of the next stage.
  Bytes behind;
};

/// The condition that the stages of a device together fit into `room`: the peak of their tasks plus
/// the boundary buffers. A device may have several such limits, one for each replica that it
/// represents.
struct HoldingLimit {
  DeviceIndex device;
  /// The available memory; if negative, nothing fits.
  Bytes room;
  /// The stages of the device that count.
  std::vector<StageHolding> stages;
};

struct TaskProblem {
  /// The stages in the order of the pipeline.
  std::vector<TaskStage> stages;
  /// The memory limit of each device.
  std::vector<Bytes> memory_limits;
  std::int32_t num_micro_batches = 1;
  bool split_backward = true;
  OrderObjective objective = OrderObjective::Span;
  /// Limits that apply in addition to the devices' memory limits.
  std::vector<HoldingLimit> holding_limits = {};
  /// The time that must follow the last task of each device before the device ends: reductions of
  /// gradients and the optimizer's step. Empty: none.
  std::vector<Duration> after_last = {};
};

/// Returns the violations of a problem: no stages or devices, negative values or values so large
/// that sums could overflow, weight gradients without a split backward, a micro-batch that does not
/// release all its memory. All other functions require that there are none. O(stages + devices).
std::vector<Violation> validate(const TaskProblem& problem);

/// Returns the minimum memory of any order on each device: that of a micro-batch's forwards on the
/// device followed by its backwards and weight gradients in turn. With at least so much on every
/// device an order exists (one micro-batch after the other, without boundary buffers); with less on
/// any device there is none. O(stages).
std::vector<Bytes> least_memory(const TaskProblem& problem);

/// Whether some order exists, which is so if one micro-batch after the other fits the memory and
/// the holding limits of the devices. O(stages + limits).
bool has_order(const TaskProblem& problem);

/// The tasks of each device in the order in which they run.
using TaskOrder = std::vector<std::vector<Task>>;

/// The start of each task of an order, at the same positions.
using TaskStarts = std::vector<std::vector<Duration>>;

struct OrderTimes {
  TaskStarts starts;
  /// The value of OrderObjective::Span.
  Duration span;
  /// The value of OrderObjective::Makespan.
  Duration makespan;
  /// After a deadlock, the first task of each device that never starts.
  std::vector<Task> waiting;

  Duration objective(OrderObjective which) const {
    return which == OrderObjective::Span ? span : makespan;
  }
};

/// Runs an order: a task starts once the previous task on its device has ended and its input is
/// there. After a deadlock, the starts are incomplete and the durations count only what ran.
/// O(tasks). Requires: a valid problem; an order for its devices, with existing stages and
/// micro-batches only.
OrderTimes run_order(const TaskProblem& problem, const TaskOrder& order);

/// Returns the violations of an order with its starts: every stage runs the tasks of every
/// micro-batch once, on its device, one at a time; a forward starts after the previous stage has
/// ended its forward and sent, a backward after the next stage has ended its backward and sent, and
/// after its own forward; a weight gradient after its backward; no prefix of a device's tasks needs
/// more memory than it has, no stage has more in flight than allowed, and the holding limits are
/// kept. The check is independent of how orders are made or run. O(tasks * limits per device).
std::vector<Violation> check_order(const TaskProblem& problem, const TaskOrder& order,
                                   const TaskStarts& starts);

}  // namespace dapple::schedule_search
