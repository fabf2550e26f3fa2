// How a plan is simulated: whether communication contends for links, and whether the replicas of a
// stage run in lockstep.
#pragma once

#include <string_view>

namespace dapple {

/// How a simulation treats transfers and all-reduces that use the same ports at the same time.
enum class Contention {
  /// All flows share ports max-min fairly, whatever they belong to. Every sender-receiver pair of a
  /// transfer is a flow, and so is every phase of an all-reduce.
  Shared,
  /// Different boundaries and collectives do not slow each other down. The sender-receiver pairs of
  /// one transfer share ports, and each port serves the transfers of a boundary in order; it is
  /// busy while it carries the bytes, but not during the latency.
  Off,
};

/// Returns "on" or "off".
std::string_view to_string(Contention contention);

/// How a simulation treats the replicas of a stage that splits micro-batches.
enum class Replicas {
  /// In lockstep, like one machine: the replicas start a micro-batch together when the last share
  /// of its input has arrived, and their results leave when the slowest replica is done.
  Together,
  /// Independently: each replica starts its share when the input of that share has arrived, and
  /// sends its results when it is done. Replicas interact only through transfers and all-reduces.
  Independent,
};

/// Returns "together" or "independent".
std::string_view to_string(Replicas replicas);

/// How a plan is simulated.
struct SimulationMode {
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;

  friend bool operator==(const SimulationMode&, const SimulationMode&) = default;
};

}  // namespace dapple
