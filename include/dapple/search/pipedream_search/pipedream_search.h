// PipeDream's planner, as a baseline: a model's states, and the dynamic programming that cuts them
// into replicated stages so that the slowest stage or transfer of a steady pipeline is as fast as
// it can be. The objective is in seconds per minibatch, as a double: it is the published code's
// arithmetic, compared with its published figures, and enters no plan as a time.
//
// Source: Narayanan et al., "PipeDream", SOSP 2019, section 3.1, in the form of the published code
// (msr-fiddle/pipedream, optimizer_graph_hierarchical.py with --activation_compression_ratio 1):
// synchronisation is added to computation where the paper takes the larger, transfers count, and
// the last stage of a cut does not divide its synchronisation by the devices of a unit, though a
// stage that is not cut does.
// Departures:
//  1. Times and sizes are summed as integers and converted once; the published sums are of doubles
//     in the order of a hash set.
//  2. A range of states is costed only where the states before it are all part of its last state.
//     The published code also costs ranges between states neither of which contains the other.
//  3. The devices of a unit are the product of the levels inside; the published code takes the
//     level just inside, which is the same up to two levels.
//  4. Ties keep the uncut range, then the earliest cut, then the fewest replicas behind it; the
//     published choice changes with the hash seed.
//  5. Memory is not looked at (the published code looks only when asked to).
//  6. Of several layers without inputs, the states start from the one that most layers depend on;
//     the published code takes the first of its file.
//  7. Models with too many states are cut along their order of layers only (PipedreamStateKind).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::search {

/// A place where a model may be cut: some layers with all that they depend on. Figures are of one
/// minibatch and of all these layers, `output` excepted.
struct PipedreamState {
  std::vector<std::int32_t> layers;  // ascending positions in the profile
  Duration compute;                  // forward and backward
  Bytes parameters;
  Bytes output;  // what a cut behind this state sends on, as PipeDream counts it
};

enum class PipedreamStateKind {
  Antichains,      // PipeDream's own
  Prefixes,        // of the profile's order, since the antichains are too many or leave layers out
  MergedPrefixes,  // the same, with neighbouring layers taken together, since the layers are too
                   // many
};

/// States in an order in which none stands before one that it contains: by rising number of layers,
/// then by their positions. The last holds all layers.
struct PipedreamStates {
  std::vector<PipedreamState> states;
  PipedreamStateKind kind = PipedreamStateKind::Antichains;
};

/// The default limit keeps resnet101 (410 states) and densenet121 (430) as PipeDream sees them; at
/// the limit, with eight devices in a server, the search takes one or two seconds.
struct PipedreamOptions {
  std::int64_t samples = 1;  // of a minibatch
  Factor time_scale = kOne;  // from the profiled device to the one planned for
  std::int32_t max_states = 500;
};

/// The largest batch size that any layer was measured at: the minibatch that PipeDream plans for.
/// Requires: at least one layer.
std::int64_t profiled_batch(const ModelProfile& profile);

/// PipeDream's states: the layer without inputs that most layers depend on, the first of them;
/// then, from each state, every layer that consumes something of it and is not in it, with all that
/// this layer depends on. What a state sends on are its maximal layers' outputs and those of every
/// layer before one maximal layer that some other layer consumes as well, even where that consumer
/// is in the state (as PipeDream counts). Prefixes send on what crosses their end. Requires: at
/// least one layer, samples >= 1, max_states >= 1. O(states * layers * layers / 64), up to a factor
/// for the number of inputs, and O(max_states * layers) for prefixes.
PipedreamStates pipedream_states(const ModelProfile& profile, const PipedreamOptions& options);

/// `units` of the level inside (devices, for the innermost), each with a link of `bandwidth`.
struct PipedreamLevel {
  std::int32_t units = 1;
  Bandwidth bandwidth;
};

/// Two levels where all servers have the same number of devices, devices in a server and servers;
/// otherwise one level of all devices. A level of one unit is left out. A bandwidth is the
/// narrowest route along the devices in fill order, or between the first devices of servers that
/// follow each other, in either direction. O(devices).
std::vector<PipedreamLevel> pipedream_levels(const Topology& topology);

/// States [begin, end) as one stage. `devices` counts device by device inside the innermost level,
/// then unit by unit outwards; a stage of u outer replicas has its share of each of these u units.
struct PipedreamStage {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::vector<std::int32_t> devices;  // ascending, one for each replica

  friend bool operator==(const PipedreamStage&, const PipedreamStage&) = default;
};

struct PipedreamPartition {
  double seconds = 0;                  // objective: per minibatch, of the slowest part
  std::vector<PipedreamStage> stages;  // first to last; every device is in one of them
};

/// The best partition over `levels`, innermost first, all of whose units are used; without levels,
/// one stage on one device. Deterministic; ties see above.
/// O(states^3 * units^2 / 12) for each level but the outermost, O(states^2 * units^2 / 4) for that.
/// No stages where `should_stop` says so first, which is asked before the ranges from each state.
/// Requires: the order of PipedreamStates; units >= 1 and bandwidth > 0 in each level.
PipedreamPartition partition_pipedream(const std::vector<PipedreamState>& states,
                                       const std::vector<PipedreamLevel>& levels,
                                       const std::function<bool()>& should_stop = nullptr);

/// The profile's layers that a stage of the partition computes, ascending.
std::vector<std::int32_t> layers_of(const PipedreamStage& stage,
                                    const std::vector<PipedreamState>& states);

/// A partition as ranges of the profile's order, one per stage, none empty.
struct PipedreamRanges {
  std::vector<LayerRange> ranges;
  std::vector<std::int32_t> displaced;  // layers in another stage than PipeDream's, ascending
};

/// The ranges that differ least from the partition: by the compute time that lies on the other side
/// of a cut, summed over the cuts, then by the number of layers; ties keep the earlier cut. Nothing
/// is displaced where every stage is a range already. `layer_compute` is per layer of the profile.
/// O(stages * layers).
PipedreamRanges nearest_ranges(const PipedreamPartition& partition,
                               const std::vector<PipedreamState>& states,
                               const std::vector<Duration>& layer_compute);

/// Forward and backward time of each layer for one minibatch.
std::vector<Duration> layer_compute_times(const ModelProfile& profile,
                                          const PipedreamOptions& options);

}  // namespace dapple::search
