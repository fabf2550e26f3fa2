// PipeDream's planner, as a baseline: the states of a model, and the dynamic programme that cuts
// them into replicated stages so that the slowest stage or transfer of the pipeline in steady state
// is as fast as possible. The objective is in seconds per minibatch, as a double. It follows the
// arithmetic of the published code, so that it can be compared with published figures, and enters
// no plan as a time.
//
// Source: Narayanan et al., "PipeDream", SOSP 2019, section 3.1, in the form of the published code
// (msr-fiddle/pipedream, optimizer_graph_hierarchical.py with --activation_compression_ratio 1).
// That code adds synchronisation to computation where the paper takes the larger of the two, and it
// counts transfers. It does not divide the synchronisation of the last stage of a cut by the
// devices of a unit, though it does so for a stage that is not cut.
// Departures:
//  1. Times and sizes are summed as integers and converted once; the published code sums doubles
//     in the order of a hash set.
//  2. A range of states is costed only if its last state contains the state before its first one.
//     The published code also costs ranges between states neither of which contains the other.
//  3. The devices of a unit are the product of the levels inside; the published code takes the
//     level just inside, which is the same for up to two levels.
//  4. Ties keep the uncut range, then the earliest cut, then the fewest replicas behind it; the
//     published choice changes with the hash seed.
//  5. Memory is not checked; the published code checks it only on request.
//  6. Of several layers without inputs, the states start from the one that most layers depend on;
//     the published code takes the first one of its file.
//  7. Models with too many states are cut along their order of layers only (PipedreamStateKind).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::search {

/// A place where a model may be cut: a set of layers that contains all layers that they depend on.
/// The figures are of one minibatch and, except `output`, of all these layers together.
struct PipedreamState {
  /// Positions in the profile, ascending.
  std::vector<std::int32_t> layers;
  /// Forward and backward.
  Duration compute;
  Bytes parameters;
  /// The bytes that a cut behind this state sends on, as PipeDream counts them.
  Bytes output;
};

enum class PipedreamStateKind {
  /// PipeDream's own states.
  Antichains,
  /// Prefixes of the profile's order, because there are too many antichains or they leave layers
  /// out.
  Prefixes,
  /// Prefixes with neighbouring layers merged, because there are too many layers.
  MergedPrefixes,
};

/// States in an order in which none stands before one that it contains: by rising number of layers,
/// then by their positions. The last state holds all layers.
struct PipedreamStates {
  std::vector<PipedreamState> states;
  PipedreamStateKind kind = PipedreamStateKind::Antichains;
};

/// Options of PipeDream's planner.
struct PipedreamOptions {
  /// Samples of a minibatch.
  std::int64_t samples = 1;
  /// Time on the kind of device that is planned for, relative to the profiled one.
  TimeSource times;
  /// The most states that are searched. Within the default limit resnet101 (410 states) and
  /// densenet121 (430) have PipeDream's own states; at the limit, with eight devices in a server,
  /// the search takes one or two seconds.
  std::int32_t max_states = 500;
};

/// Returns the largest batch size at which any layer was measured, which is the minibatch that
/// PipeDream plans for.
/// Requires: at least one layer.
std::int64_t profiled_batch(const ModelProfile& profile);

/// Returns PipeDream's states. The first is the layer without inputs that most layers depend on
/// (the first of several such layers). Each state leads to others: it is joined by any one layer
/// that is not in it but consumes an output of it, together with all that this layer depends on. A
/// state sends on the output of each of its maximal layers, and that of each layer that a maximal
/// layer depends on and that is also consumed by another layer that this maximal layer does not
/// depend on, even if that consumer is in the state (as PipeDream counts). Prefixes send on what
/// crosses their end. O(states * layers * layers / 64), up to a factor for the number of inputs,
/// and O(max_states * layers) for prefixes.
/// Requires: at least one layer, samples >= 1, max_states >= 1.
PipedreamStates pipedream_states(const ModelProfile& profile, const PipedreamOptions& options);

/// One level of the hierarchy of devices: `units` units of the level inside (devices, for the
/// innermost level), each with a link of `bandwidth`.
struct PipedreamLevel {
  std::int32_t units = 1;
  Bandwidth bandwidth;
};

/// Returns two levels, the devices of a server and the servers, if all servers have the same number
/// of devices, and otherwise one level of all devices. A level of one unit is left out. The
/// bandwidth of a level is that of the narrowest route, in either direction, between consecutive
/// devices in fill order or between the first devices of consecutive servers. O(devices).
std::vector<PipedreamLevel> pipedream_levels(const Topology& topology);

/// States [begin, end) as one stage. Devices are numbered device by device inside the innermost
/// level, then unit by unit outwards; a stage with u replicas at an outer level has its share of
/// each of these u units.
struct PipedreamStage {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  /// Ascending, one for each replica.
  std::vector<std::int32_t> devices;

  friend bool operator==(const PipedreamStage&, const PipedreamStage&) = default;
};

struct PipedreamPartition {
  /// The objective: seconds per minibatch of the slowest stage or transfer.
  double seconds = 0;
  /// First to last; every device belongs to one of them.
  std::vector<PipedreamStage> stages;
};

/// Returns the best partition over `levels`, innermost first, that uses all of their units; without
/// levels, one stage on one device. It has no stages if `should_stop`, which is called before the
/// ranges from each state, returned true. Deterministic; departure 4 says how ties are broken.
/// O(states^3 * units^2 / 12) for each level but the outermost, O(states^2 * units^2 / 4) for that.
/// Requires: `states` in the order of PipedreamStates; units >= 1 and bandwidth > 0 in each level.
PipedreamPartition partition_pipedream(const std::vector<PipedreamState>& states,
                                       const std::vector<PipedreamLevel>& levels,
                                       const std::function<bool()>& should_stop = nullptr);

/// Returns the layers of the profile that a stage of the partition computes, ascending.
std::vector<std::int32_t> layers_of(const PipedreamStage& stage,
                                    const std::vector<PipedreamState>& states);

/// A partition as ranges of the profile's order, one per stage, none empty.
struct PipedreamRanges {
  std::vector<LayerRange> ranges;
  /// Layers that are in another stage than in PipeDream's partition, ascending.
  std::vector<std::int32_t> displaced;
};

/// Returns the ranges that differ least from the partition, by the compute time on the wrong side
/// of a cut, summed over the cuts, then by the number of such layers; ties keep the earlier cut. No
/// layer is displaced if every stage is a range already. `layer_compute` has one entry per layer of
/// the profile. O(stages * layers).
PipedreamRanges nearest_ranges(const PipedreamPartition& partition,
                               const std::vector<PipedreamState>& states,
                               const std::vector<Duration>& layer_compute);

/// Returns the time of forward plus backward of each layer for one minibatch.
std::vector<Duration> layer_compute_times(const ModelProfile& profile,
                                          const PipedreamOptions& options);

}  // namespace dapple::search
