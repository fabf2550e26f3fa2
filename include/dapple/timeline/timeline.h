// What happened when, predicted by simulation or measured by the executor; one type for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/schedule/schedule.h"

namespace dapple {

/// One action on one lane. An all-reduce's and a send's end is when the last byte has arrived.
struct TimedAction {
  LaneIndex lane;
  Action action;
  Duration start;
  Duration end;
  Bytes size;  // sent or reduced; zero for computation
};

/// What a device holds for one of its stages: per micro-batch in flight (from the start of its
/// forward to the end of its backward's last part), and from the start of a backward that runs its
/// forward again to that end.
struct StageMemory {
  StageIndex stage;
  Bytes per_micro_batch;
  Bytes recompute_stash;

  friend bool operator==(const StageMemory&, const StageMemory&) = default;
};

/// What a device holds: always, and for the micro-batches that pass.
struct DeviceMemory {
  DeviceIndex device;
  LaneIndex lane;
  Bytes fixed;
  std::vector<StageMemory> stages;  // of its lane, ascending
  Bytes limit;
};

struct Timeline {
  enum class Origin { Predicted, Measured };
  Origin origin = Origin::Predicted;
  struct LaneName {
    std::vector<StageIndex> stages;
    std::vector<DeviceIndex> devices;
    /// Of each micro-batch that it works on; nothing for all of them.
    std::optional<SampleRange> samples = {};
  };
  std::vector<LaneName> lanes;
  std::vector<TimedAction> actions;  // by start, then lane, then stream, then end
  std::vector<DeviceMemory> memory;  // one per used device
};

/// Puts the actions into their order; those alike in it stay as they are. O(actions) where starts
/// are apart, O(actions log actions) where many are equal.
void sort_actions(Timeline& timeline);

/// From moment zero, at which the iteration starts, to the last end. O(actions).
Duration iteration_time(const Timeline& timeline);

/// Idle compute time of the used devices / (iteration * used devices); zero for an empty timeline.
/// O(actions).
double bubble_fraction(const Timeline& timeline);
/// The same where the iteration and busy_times() are known. O(lanes).
double bubble_fraction(const Timeline& timeline, Duration iteration,
                       const std::vector<Duration>& busy);

/// Time that a lane spends computing: forwards, backwards, optimizer step. O(actions).
Duration busy_time(const Timeline& timeline, LaneIndex lane);
/// The same for every lane. O(actions).
std::vector<Duration> busy_times(const Timeline& timeline);

/// A row of its lane's stream for each action, by position: 0, unless what is drawn there before it
/// has not ended. Messages overlap by their latency; in a row of their own they do not.
/// O(actions * rows).
std::vector<std::int32_t> rows_of(const Timeline& timeline);

/// A transfer and the computation that takes in what it brings, as positions in
/// Timeline::actions.
struct Message {
  std::size_t transfer = 0;
  std::size_t receiver = 0;
};
/// All messages, by receiver. O(actions).
std::vector<Message> messages_of(const Timeline& timeline);

/// A change of what a device holds, from `time` on.
struct MemoryPoint {
  Duration time;
  Bytes held;
};
/// What one device holds over time, by a sweep over its lane's actions; the first point is at 0.
/// What ends at a moment is given back before what starts at it is taken. O(actions log actions).
std::vector<MemoryPoint> memory_over_time(const Timeline& timeline, const DeviceMemory& device);

/// The most of it. O(actions log actions).
Bytes peak_memory(const Timeline& timeline, const DeviceMemory& device);

/// The same from the order alone, as a lane computes one thing after another. O(actions), times log
/// stages.
Bytes peak_memory(const Lane& lane, const DeviceMemory& device);

/// Most micro-batches in flight on a lane at any moment, those of all its stages together.
/// O(actions log actions).
std::int64_t most_in_flight(const Timeline& timeline, LaneIndex lane);

}  // namespace dapple
