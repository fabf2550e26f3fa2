// What a runtime, the program that trains by a plan, does with it: how it sends, when it reduces
// gradients, which warm-up depths it has, and what it keeps in memory beside the model
// (profiles/runtimes, docs/model.md, section 10.12). Without a runtime, transfers and reductions
// are hidden behind computation as far as possible, and depths are free.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/profile/collective.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/description.h"

namespace dapple {

struct Runtime {
  std::string name;
  /// Where it is from, in words.
  std::string source;
  /// Where single figures are from, by their keys in a dapple-runtime/1.
  std::map<std::string, std::string> sources = {};
  Transfers transfers = Transfers::Overlapped;
  /// Whether transfers overlap under the interleaved schedule, whatever they do under others.
  bool overlaps_interleaved = false;
  /// How tensor ranks send what all of them have.
  Boundaries boundaries = Boundaries::Whole;
  /// Whether buckets of gradients are reduced while the last backward still runs.
  bool overlaps_gradients = true;
  /// Whether the depths are the least that keep all stages busy, K_s = S - s.
  bool has_least_depths = false;
  /// Bytes per parameter byte, in place of the profile's.
  std::optional<Factor> gradient_bytes_per_parameter_byte = {};
  std::optional<Factor> framework_bytes_per_parameter_byte = {};
  /// What it keeps on every device beside the model, at least.
  Bytes reserved;

  // What a model's configuration is estimated with for it; other profiles state what they are of.
  /// Each tensor-parallel rank has a multiple of it of the vocabulary, which is padded.
  std::int64_t vocabulary_multiple = 1;
  /// Whether it has sequence parallelism beside tensor parallelism.
  bool has_sequence_parallelism = true;
  /// How its context-parallel ranks exchange keys and values, if that is said.
  std::optional<ContextExchange> context_exchange = {};
  /// Whether the copies of a token for experts of one other server are sent there once.
  bool merges_copies = false;
  /// The least time of a pass of a layer, in place of the calibration's.
  std::optional<Duration> launch_floor = {};

  /// Whether it changes what a profile or a topology says of memory.
  bool keeps_memory() const {
    return gradient_bytes_per_parameter_byte || framework_bytes_per_parameter_byte ||
           reserved > Bytes{};
  }
  friend bool operator==(const Runtime&, const Runtime&) = default;
};

/// Give the profile and the devices of the topology what the runtime keeps in memory, and the
/// profile how it sends tensors. Doing so again changes nothing. Requires: every device has more
/// memory than is reserved.
void apply(const Runtime& runtime, ModelProfile& profile);
void apply(const Runtime& runtime, TopologyDescription& topology);

/// Returns how the runtime sends under a schedule family.
Transfers transfers_of(const Runtime& runtime, ScheduleFamily family);

/// Returns why a plan cannot be simulated in a mode: where groups of stages have different sizes,
/// replicas that are not together; where transfers block, a schedule other than
/// 1F1B and GPipe, replicas that are not together, dealt micro-batches, or a warm-up depth that is
/// more than one above that of the next stage, so that both would wait for each other. Empty if it
/// can. Requires: the plan is valid. O(stages).
std::vector<Violation> mode_faults(const Plan& plan, SimulationMode mode);

/// Returns what a plan and the mode in which it was simulated have that is not the runtime's.
std::vector<Violation> runtime_faults(const Runtime& runtime, const Plan& plan,
                                      SimulationMode mode);

/// Returns what the runtime keeps in memory that the profile and the topology do not have.
std::vector<Violation> memory_faults(const Runtime& runtime, const ModelProfile& profile,
                                     const TopologyDescription& topology);

}  // namespace dapple
