// A plan: which layers form which stage, on which devices, with which micro-batches and in which
// order. `Plan` is what a schedule is generated from; `PlanDocument` is all that a plan file holds,
// so that nothing else is needed to simulate, check or run it.
//
// Source: DAPPLE (PPoPP'21) sections 3 and 4. Departures: stages may leave devices idle; the
// warm-up depth of every stage is free between 1 and the number of micro-batches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// What the replicas of a stage share out.
enum class Replication {
  Split,  // each micro-batch: replica i of r gets floor(B/r) + (i < B mod r) consecutive samples
  Deal,   // whole micro-batches, in turn: replica i gets those with number i modulo r
};

enum class ScheduleFamily {
  GPipe,     // all forwards, then all backwards
  OneFOneB,  // K forwards, then one backward and one forward in turn, then the backwards left
};

/// "gpipe", "1f1b".
std::string_view to_string(ScheduleFamily family);
std::string_view to_string(Replication replication);

struct StagePlan {
  LayerRange layers;
  std::vector<DeviceIndex> devices;  // replica by replica
  Replication replication = Replication::Split;
  bool recompute = false;               // keep only the stage's input, run the forward again
  std::vector<Bytes> gradient_buckets;  // reduced in this order; empty for one replica
};

struct Plan {
  std::int64_t global_batch_size = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t num_micro_batches = 1;
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  std::vector<std::int64_t> warmup_depths;  // per stage, most micro-batches in flight
  std::vector<StagePlan> stages;
};

/// Samples of one micro-batch, [begin, end).
struct SampleRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  constexpr std::int64_t size() const { return end - begin; }
};
/// The share of replica `replica` of `replicas`: as even as whole samples allow, the larger shares
/// first. O(1). Requires: 0 <= replica < replicas.
SampleRange replica_share(std::int64_t micro_batch_size, std::int64_t replicas,
                          std::int64_t replica);

/// Samples that a replica of `stage` works on at a time: its share, or a whole micro-batch if
/// dealt.
SampleRange samples_of(const Plan& plan, const StagePlan& stage, std::size_t replica);

/// Micro-batches that replica `replica` of `stage` works on.
std::int64_t micro_batches_of(const Plan& plan, const StagePlan& stage, std::size_t replica);

/// Most micro-batches times stages of a plan. Its schedule has up to six actions for each, and must
/// fit into memory.
inline constexpr std::int64_t kMaxStagePasses = 10'000'000;

/// Structural faults, each named, with a JSON pointer into the plan: layers not covered or covered
/// twice, devices used twice or not there, fewer samples than replicas, batch sizes that do not
/// multiply, warm-up depths that are out of range or rise from a stage to the next. Memory and
/// deadlocks are not looked at here. Empty if the plan is sound. O(stages + devices).
std::vector<Violation> validate(const Plan& plan, std::int32_t layer_count,
                                const Topology& topology);

/// Costs of a stage as the plan was made with them, for readers of the file.
struct StageFigures {
  Duration forward;     // one micro-batch, slowest replica
  Duration backward;    // recomputation included
  Bytes send;           // activations of one micro-batch to the next stage, all replicas
  Duration all_reduce;  // of all buckets one after another, without overlap
  Duration optimizer_step;
};

struct DeviceFigures {
  DeviceIndex device;
  Bytes peak_memory;
  Bytes memory_limit;
  double busy_fraction = 0;  // of the iteration, computing
};

/// Predicted by simulation; definitions in the formats' section of the README.
struct Prediction {
  Duration iteration;
  double samples_per_second = 0;
  std::optional<double> speedup_over_one_device;
  std::optional<Duration> lower_bound;
  std::optional<double> optimality_gap;
  double bubble_fraction = 0;
  Duration exposed_transfer;
  Duration exposed_all_reduce;
  std::vector<StageFigures> stages;
  std::vector<DeviceFigures> devices;  // the used ones, by index
};

/// Another way to train the same model, simulated with the same costs.
struct Baseline {
  std::string name;
  Duration iteration;
  bool feasible = true;
  Bytes missing;  // on its tightest device
};

/// What was searched. `complete` only if nothing of the declared space was left out.
struct SearchRecord {
  std::string planner;
  bool complete = false;
  std::vector<std::string> searched;  // the dimensions, in words
  std::vector<std::string> cut;       // what was left out, and why
  std::int64_t states = 0;
  std::int64_t candidates = 0;
  std::int64_t simulated = 0;
};

struct PlanDocument {
  std::string tool;  // "dapple-plan 0.1.0"
  ModelProfile profile;
  TopologyDescription topology;
  Plan plan;
  Prediction prediction;
  std::vector<Baseline> baselines;
  SearchRecord search;
  std::vector<std::string> warnings;
};

}  // namespace dapple
