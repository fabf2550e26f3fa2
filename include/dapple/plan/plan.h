// A plan: which layers form which stage, on which devices, with which micro-batches and in which
// order. A schedule is generated from it. plan/document.h has all that a plan file holds beside it.
//
// Source: DAPPLE (PPoPP'21) sections 3 and 4. Departures: stages may leave devices idle; the
// warm-up depth of every stage is free between 1 and the number of micro-batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/action.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/profile/model_profile.h"

namespace dapple {

/// What the replicas of a stage share out.
enum class Replication {
  Split,  // each micro-batch: replica i of r gets floor(B/r) + (i < B mod r) consecutive samples
  Deal,   // whole micro-batches, in turn: replica i gets those with number i modulo r
};

/// "split", "deal".
std::string_view to_string(Replication replication);

/// When a stage's parameters are updated.
enum class OptimizerTiming {
  AtEnd,      // once all of its gradients are reduced, so that their norm may be clipped
  PerBucket,  // those of a bucket once it is reduced, beside the reduction of the next
};

/// "at-end", "per-bucket".
std::string_view to_string(OptimizerTiming timing);

/// Gradients are reduced in buckets of this size, PyTorch DDP's default.
inline constexpr Bytes kDefaultBucketSize{25 * 1024 * 1024};

/// How a stage of several replicas gets from gradients to new parameters.
struct GradientSynchronization {
  Bytes bucket_size = kDefaultBucketSize;  // a bucket is closed once it holds so much
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;

  friend bool operator==(const GradientSynchronization&, const GradientSynchronization&) = default;
};

struct StagePlan {
  LayerRange layers;
  std::vector<DeviceIndex> devices;  // replica by replica
  Replication replication = Replication::Split;
  bool recompute = false;               // keep only the stage's input, run the forward again
  std::vector<Bytes> gradient_buckets;  // reduced in this order; empty for one replica
};

/// Gradients of parameters that layers on several stages use (profile's ties): each of these stages
/// holds a copy, and their gradients are summed over the devices of all of them, each on its own
/// first, once all of these stages have made them.
struct TiedGradients {
  LayerIndex owner;                // whose parameters they are
  std::vector<StageIndex> stages;  // ascending, at least two

  friend bool operator==(const TiedGradients&, const TiedGradients&) = default;
};

struct Plan {
  std::int64_t global_batch_size = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t num_micro_batches = 1;
  GradientSynchronization gradients = {};  // the buckets themselves are each stage's
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  std::vector<std::int64_t> warmup_depths;  // per stage, most micro-batches in flight
  /// Stages that each device holds, its chunks. With v of them and S groups of devices there are
  /// S * v stages: stage i on the devices of stage i mod S, or, in a V of two, of 2S - 1 - i.
  std::int64_t chunks_per_device = 1;
  /// Where the family carries its order: per lane, in the order of the schedule's lanes, the
  /// forwards and backwards.
  std::vector<std::vector<Action>> order = {};
  std::vector<StagePlan> stages;
  /// Those of tied_gradients(). Every stage reduces them in this order, behind its own buckets.
  std::vector<TiedGradients> tied_gradients = {};
};

/// The gradients to which several of the stages add, by holder. O(ties * users * stages).
std::vector<TiedGradients> tied_gradients(const ModelProfile& profile,
                                          const std::vector<StagePlan>& stages);

/// Positions in plan.tied_gradients of those that some of the stages hold, ascending. O(ties *
/// stages asked for * log stages).
std::vector<std::int32_t> ties_of(const Plan& plan, const std::vector<StageIndex>& stages);

/// The first of the stages that holds them: the one that their reduction on a device goes by.
/// Requires: one of them does.
StageIndex representative_stage(const TiedGradients& tied, const std::vector<StageIndex>& stages);

/// Stages that share their devices, by their first: {{0, 4}, {1, 5}, {2, 6}, {3, 7}}.
/// O(stages log stages). Requires: every stage has devices.
std::vector<std::vector<StageIndex>> stages_by_device_group(const Plan& plan);

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

/// Whether some stage splits micro-batches over several replicas: elsewhere both ways to treat them
/// are one. O(stages).
bool splits_micro_batches(const Plan& plan);

/// Whether some stage deals whole micro-batches to several replicas. O(stages).
bool deals_micro_batches(const Plan& plan);

/// Most micro-batches times stages of a plan. Its schedule has up to six actions for each, and must
/// fit into memory.
inline constexpr std::int64_t kMaxStagePasses = 10'000'000;

/// Devices per stage and micro-batches in few words: "8:8, 32 of 64" is two stages of eight devices
/// and 32 micro-batches of 64 samples; "16 straight, ..." 16 stages of one device each; more than
/// four equal stages in a row are counted, "6x2:4". Of stages that share devices it counts the
/// first, and says "with 2 stages each". ", recomputing" if any stage does. O(stages).
std::string shape_of(const Plan& plan);

}  // namespace dapple
