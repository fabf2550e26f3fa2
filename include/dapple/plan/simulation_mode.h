// How a plan is simulated: whether communication contends for links, whether the replicas of a
// stage run in lockstep, and whether a stage computes while it sends and receives.
#pragma once

#include <string_view>

#include "dapple/topology/description.h"

namespace dapple {

/// How a simulation treats transfers and all-reduces that use the same ports at the same time.
enum class Contention {
  /// All flows share ports max-min fairly, whatever they belong to. Every sender-receiver pair of a
  /// transfer is a flow, and so is every phase of an all-reduce.
  Shared,
  /// The same, and so are the collectives of layers that a group of devices on several servers
  /// shares, instead of being a part of the times of passes.
  SharedWithCollectives,
  /// Different boundaries and collectives do not slow each other down. The sender-receiver pairs of
  /// one transfer share ports, and each port serves the transfers of a boundary in order; it is
  /// busy while it carries the bytes, but not during the latency.
  Off,
};

/// Returns "on" or "off".
std::string_view to_string(Contention contention);

/// Whether flows share ports.
constexpr bool shares_links(Contention contention) {
  return contention != Contention::Off;
}

/// Returns what of this there can be on a topology of devices or groups: collectives of layers
/// share links only where groups are on several servers.
Contention suited_to(const TopologyDescription& topology, Contention contention);

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

/// How a stage sends and receives.
enum class Transfers {
  /// Beside computation: a tensor is sent as soon as it is made, and a stage waits only for what it
  /// needs.
  Overlapped,
  /// A stage computes nothing from the moment at which it sends or wants to receive until the
  /// transfer is over, which begins when both stages are ready for it. What a stage sends to a
  /// neighbour and receives from the same one between two computations is under way at the same
  /// time, as in Megatron-LM without overlapped communication.
  Blocking,
  /// The same, but one transfer after another, as in DeepSpeed's pipeline engine.
  Serial,
};

/// Returns "overlapped", "blocking" or "serial".
std::string_view to_string(Transfers transfers);

/// How a plan is simulated. Where transfers are not overlapped, replicas are together.
struct SimulationMode {
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;
  Transfers transfers = Transfers::Overlapped;

  /// Whether stages compute nothing while they send or receive.
  bool blocks() const { return transfers != Transfers::Overlapped; }

  friend bool operator==(const SimulationMode&, const SimulationMode&) = default;
};

}  // namespace dapple
