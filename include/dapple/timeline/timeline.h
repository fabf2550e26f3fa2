// The times of all actions of an iteration, predicted by simulation or measured by the executor;
// both use the same type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/schedule/schedule.h"

namespace dapple {

/// One action on one lane. An all-reduce or a send ends when its last byte has arrived.
struct TimedAction {
  LaneIndex lane;
  Action action;
  Duration start;
  Duration end;
  /// The bytes sent or reduced; zero for computation.
  Bytes size;
};

/// The memory that a device needs for one of its stages.
struct StageMemory {
  StageIndex stage;
  /// Held for each micro-batch in flight: from the start of its forward to the end of the last part
  /// of its backward.
  Bytes per_micro_batch;
  /// Held additionally with recomputation, from the start of a backward to the end of its last
  /// part.
  Bytes recompute_stash;

  friend bool operator==(const StageMemory&, const StageMemory&) = default;
};

/// The memory that a device needs: the fixed part, and the part that depends on the micro-batches
/// in flight.
struct DeviceMemory {
  DeviceIndex device;
  LaneIndex lane;
  Bytes fixed;
  /// The stages of the device's lane, ascending.
  std::vector<StageMemory> stages;
  Bytes limit;
};

struct Timeline {
  enum class Origin { Predicted, Measured };
  Origin origin = Origin::Predicted;
  /// How stages send and receive; of a measured timeline, overlapped.
  Transfers transfers = Transfers::Overlapped;
  /// The stages that send to others than the next one, and to which each does. What a stage sends
  /// of a micro-batch to several stages is one action, until the last byte has arrived at the last
  /// of them.
  std::vector<std::pair<StageIndex, StageIndex>> skips = {};
  struct LaneName {
    std::vector<StageIndex> stages;
    std::vector<DeviceIndex> devices;
    /// The samples of each of its micro-batches that the lane processes; empty for all of them.
    std::optional<SampleRange> samples = {};
  };
  std::vector<LaneName> lanes;
  /// The actions, ordered by start, then lane, then stream, then end.
  std::vector<TimedAction> actions;
  /// One entry per used device.
  std::vector<DeviceMemory> memory;
};

/// Sorts the actions into the order of Timeline::actions; the sort is stable. O(actions) if most
/// starts differ, O(actions log actions) if many are equal.
void sort_actions(Timeline& timeline);

/// Returns the time from zero, at which the iteration starts, to the last end. O(actions).
Duration iteration_time(const Timeline& timeline);

/// Returns the idle compute time of the used devices / (iteration * used devices), or zero for an
/// empty timeline. O(actions).
double bubble_fraction(const Timeline& timeline);
/// Returns the same for a known iteration and the given busy_times(). O(lanes).
double bubble_fraction(const Timeline& timeline, Duration iteration,
                       const std::vector<Duration>& busy);

/// Returns the time that a lane spends computing: forwards, backwards and optimizer steps.
/// O(actions).
Duration busy_time(const Timeline& timeline, LaneIndex lane);
/// Returns busy_time() of every lane. O(actions).
std::vector<Duration> busy_times(const Timeline& timeline);

/// Returns for each action, by position, the row in which it is drawn within its lane's stream:
/// the first row in which all actions before it have ended. Messages may overlap by their latency,
/// which takes them to separate rows. O(actions * rows).
std::vector<std::int32_t> rows_of(const Timeline& timeline);

/// A transfer and the computation that consumes the transferred tensor, as positions in
/// Timeline::actions.
struct Message {
  std::size_t transfer = 0;
  std::size_t receiver = 0;
};
/// Returns all messages, ordered by receiver. O(actions).
std::vector<Message> messages_of(const Timeline& timeline);

/// A change of the memory in use: from `time` on, the device holds `held`.
struct MemoryPoint {
  Duration time;
  Bytes held;
};
/// Returns the memory in use of one device over time, by a sweep over its lane's actions; the first
/// point is at time 0. Memory that is released at some time is subtracted before memory that is
/// allocated at the same time is added. O(actions log actions).
std::vector<MemoryPoint> memory_over_time(const Timeline& timeline, const DeviceMemory& device);

/// Returns the maximum of memory_over_time(). O(actions log actions).
Bytes peak_memory(const Timeline& timeline, const DeviceMemory& device);

/// Returns the same peak from the order of actions alone, since a lane runs one computation after
/// another. O(actions), times log stages.
Bytes peak_memory(const Lane& lane, const DeviceMemory& device);

/// Returns the maximum number of micro-batches in flight on a lane at any time, those of all its
/// stages together. O(actions log actions).
std::int64_t most_in_flight(const Timeline& timeline, LaneIndex lane);

}  // namespace dapple
