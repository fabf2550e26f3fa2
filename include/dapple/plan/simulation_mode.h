// How a plan is simulated: what shares links, and what starts together.
#pragma once

#include <string_view>

namespace dapple {

/// How a simulation treats transfers and all-reduces that use the same ports at the same time.
enum class Contention {
  /// Flows share ports max-min fair, whatever they belong to: every pair of a transfer is a flow,
  /// and so is every phase of an all-reduce.
  Shared,
  /// Different boundaries and collectives do not slow each other. The pairs of one transfer share
  /// ports, and a boundary's port serves its transfers in order, busy for the bytes, not for the
  /// latency.
  Off,
};

/// "on", "off".
std::string_view to_string(Contention contention);

/// How a simulation treats the replicas of a stage that splits micro-batches.
enum class Replicas {
  /// As one machine: they start a micro-batch together, when the last share of its input has
  /// arrived, and what they make leaves when the slowest has it.
  Together,
  /// Each on its own: it starts its share when all that this needs has arrived, and sends what it
  /// makes when it has it. They meet where transfers do, and at all-reduces.
  Independent,
};

/// "together", "independent".
std::string_view to_string(Replicas replicas);

/// How a plan is simulated.
struct SimulationMode {
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;

  friend bool operator==(const SimulationMode&, const SimulationMode&) = default;
};

}  // namespace dapple
