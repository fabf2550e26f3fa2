// A plan: the assignment of layers to stages and of stages to devices, the micro-batches, and the
// order of execution, from which a schedule is generated. plan/document.h adds the other contents
// of a plan file.
//
// Source: DAPPLE (PPoPP'21) sections 3 and 4. Departures: devices may remain unused; the warm-up
// depth of every stage may be any number between 1 and the number of micro-batches.
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
#include "dapple/profile/parallelism.h"

namespace dapple {

/// How the replicas of a stage divide the work.
enum class Replication {
  /// Replicas share every micro-batch, each of them consecutive samples: replica i of r gets
  /// floor(B/r) + (i < B mod r), or what StagePlan::samples says.
  Split,
  /// Replicas take whole micro-batches in turn: replica i of r gets those whose number modulo r
  /// is i.
  Deal,
};

/// Returns "split" or "deal".
std::string_view to_string(Replication replication);

/// When a stage's parameters are updated.
enum class OptimizerTiming {
  /// Once all gradients of the stage are reduced, so that their norm may be clipped.
  AtEnd,
  /// Those of each bucket once it is reduced, concurrently with the reduction of the next bucket.
  PerBucket,
};

/// Returns "at-end" or "per-bucket".
std::string_view to_string(OptimizerTiming timing);

/// The default size of gradient buckets, as in PyTorch DDP.
inline constexpr Bytes kDefaultBucketSize{25 * 1024 * 1024};

/// How a stage with several replicas reduces its gradients and updates its parameters.
struct GradientSynchronization {
  /// A bucket is closed once it holds this many bytes.
  Bytes bucket_size = kDefaultBucketSize;
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
  /// Whether a bucket is reduced once its gradients are made, beside the rest of the last backward,
  /// or only behind that.
  bool overlaps = true;

  friend bool operator==(const GradientSynchronization&, const GradientSynchronization&) = default;
};

struct StagePlan {
  LayerRange layers;
  /// By replica: `devices_per_replica` consecutive ones of each.
  std::vector<DeviceIndex> devices;
  Replication replication = Replication::Split;
  /// Whether the stage stashes only its input and runs its forward again before the backward.
  bool recompute = false;
  /// Its form of parallelism: 0 for that of the plan, otherwise one of Plan::stage_forms.
  FormIndex form = {};
  /// The sizes of the buckets in the order of their reduction; empty for one replica.
  std::vector<Bytes> gradient_buckets;
  /// The samples that each replica has of a micro-batch, at least one; empty where the stage deals
  /// micro-batches and where shares are those of replica_share().
  std::vector<std::int64_t> samples = {};
  /// The devices of the plan that make up one replica: above 1 only in a form whose groups are
  /// larger than those of the plan, each of which is a device.
  std::int32_t devices_per_replica = 1;
};

/// Returns the number of replicas of a stage. O(1).
inline std::int64_t replicas_of(const StagePlan& stage) {
  return std::ssize(stage.devices) / stage.devices_per_replica;
}

/// The gradients of parameters that layers on several stages use (a tie of the profile). Each of
/// these stages holds a copy of the parameters. Once all of them have computed their gradients,
/// each device adds its own, and the sum over the devices of all these stages is computed.
struct TiedGradients {
  /// The layer that owns the parameters.
  LayerIndex owner;
  /// Ascending, at least two.
  std::vector<StageIndex> stages;

  friend bool operator==(const TiedGradients&, const TiedGradients&) = default;
};

struct Plan {
  std::int64_t global_batch_size = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t num_micro_batches = 1;
  /// The form of parallelism within every device of the plan, which is a group of devices that
  /// share each layer, unless there is none.
  Parallelism parallelism = {};
  /// The other forms in which stages run: form 1, form 2 and so on. Their groups have as many
  /// devices, or a multiple of them.
  std::vector<Parallelism> stage_forms = {};
  /// How tensors reach stages further on than the next one. The figures of a plan follow from
  /// ModelProfile::skip_tensors, which is the same.
  SkipTensors skip_tensors = SkipTensors::Forwarded;
  /// How the tensor ranks of groups send what all of them have; ModelProfile::boundaries, likewise.
  Boundaries boundaries = Boundaries::Whole;
  /// The buckets themselves are in StagePlan::gradient_buckets.
  GradientSynchronization gradients = {};
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  /// By stage, the largest number of micro-batches in flight.
  std::vector<std::int64_t> warmup_depths;
  /// The number of stages on each device, its chunks. With v chunks and S groups of devices there
  /// are S * v stages. Stage i is on the devices of stage i mod S or, in a V of two chunks and for
  /// i >= S, on those of stage 2S - 1 - i.
  std::int64_t chunks_per_device = 1;
  /// If the family carries its order: the forwards and backwards of each lane, in the order of the
  /// schedule's lanes.
  std::vector<std::vector<Action>> order = {};
  std::vector<StagePlan> stages;
  /// The result of tied_gradients(). Every stage reduces them in this order, after its own buckets.
  std::vector<TiedGradients> tied_gradients = {};
};

/// Returns the forms that plans from this profile have beside that of the profile itself.
std::vector<Parallelism> stage_forms_of(const ModelProfile& profile);

/// Returns how many groups of the profile's own form are as large as one of another form of its,
/// at least one.
std::int32_t devices_per_replica(const ModelProfile& profile, const ModelProfile& form);

/// Whether some form of the profile has larger groups than its own form. O(forms).
bool has_larger_groups(const ModelProfile& profile);

/// Returns the form of parallelism of a stage. O(1).
const Parallelism& form_of(const Plan& plan, const StagePlan& stage);

/// Returns the gradients to which several of the stages contribute, by owner.
/// O(ties * users * stages).
std::vector<TiedGradients> tied_gradients(const ModelProfile& profile,
                                          const std::vector<StagePlan>& stages);

/// Returns the positions in plan.tied_gradients, ascending, of those that at least one of `stages`
/// holds. O(ties * stages asked for * log stages).
std::vector<std::int32_t> ties_of(const Plan& plan, const std::vector<StageIndex>& stages);

/// Returns the first of `stages` that holds the tied gradients; their reduction on a device is
/// listed under this stage. Throws Bug if none holds them.
StageIndex representative_stage(const TiedGradients& tied, const std::vector<StageIndex>& stages);

/// Returns the groups of stages that share their devices, by their first stage, such as
/// {{0, 4}, {1, 5}, {2, 6}, {3, 7}}. O(stages log stages). Requires: every stage has devices.
std::vector<std::vector<StageIndex>> stages_by_device_group(const Plan& plan);

/// The samples [begin, end) of a micro-batch.
struct SampleRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  constexpr std::int64_t size() const { return end - begin; }
};

/// Returns the share of replica `replica` of `replicas`: as even as whole samples allow, with the
/// larger shares first. O(1). Requires: 0 <= replica < replicas.
SampleRange replica_share(std::int64_t micro_batch_size, std::int64_t replicas,
                          std::int64_t replica);

/// Whether the replicas with these samples have the shares of replica_share(). O(replicas).
bool are_equal_shares(std::int64_t micro_batch_size, const std::vector<std::int64_t>& samples);

/// The shares that the replicas of a stage have of every micro-batch: consecutive samples, in the
/// order of the replicas.
class ReplicaShares {
 public:
  /// Shares of replica_share() or, if `samples` is not empty, of so many samples each.
  /// Requires: `samples` is empty or has one element for each replica, at least 1 each, which add
  /// up to the micro-batch. O(replicas) if it is not empty.
  ReplicaShares(std::int64_t micro_batch_size, std::int64_t replicas,
                const std::vector<std::int64_t>& samples);

  std::int64_t replicas() const { return replicas_; }
  /// O(1).
  SampleRange of(std::int64_t replica) const;

 private:
  std::int64_t micro_batch_size_;
  std::int64_t replicas_;
  // Where each share ends; empty for those of replica_share().
  std::vector<std::int64_t> ends_;
};

/// Returns the samples that the device at this position in the list of `stage` processes at a time:
/// the share of its replica of a micro-batch, or a whole micro-batch if the stage deals them.
/// O(replicas) where shares are given one by one.
SampleRange samples_of(const Plan& plan, const StagePlan& stage, std::size_t device);

/// Returns the number of micro-batches that the device at this position in the list of `stage`
/// processes.
std::int64_t micro_batches_of(const Plan& plan, const StagePlan& stage, std::size_t device);

/// Whether the groups of some stages are larger than those of the plan. O(stages).
bool has_larger_groups(const Plan& plan);

/// Sets of every stage how many devices a replica has, from the forms of the plan.
/// Requires: the group of every form has a multiple of the devices of the plan's own form.
void set_devices_per_replica(Plan& plan);

/// Returns the number of lanes to which a stage deals its micro-batches in turn: that of its
/// replicas if it deals them, otherwise one. O(1).
std::int64_t dealt_to(const StagePlan& stage);

/// Returns the most micro-batches that any replica of a stage processes: all of them or, where the
/// stage deals them, those of its first replica. O(1).
std::int64_t most_micro_batches_of(const Plan& plan, const StagePlan& stage);

/// Returns the most micro-batches in flight on each replica of a stage: its warm-up depth, but no
/// more than the replica processes, as under GPipe, where a warm-up depth is that of all
/// micro-batches. O(1).
std::int64_t depth_on_replica(const Plan& plan, StageIndex stage);

/// Gives every stage its largest warm-up depth: that of all micro-batches of a replica or, under
/// GPipe, of all of the plan's. O(stages).
void set_largest_depths(Plan& plan);

/// Whether some stage splits micro-batches over several replicas. If none does, Replicas::Together
/// and Replicas::Independent are the same. O(stages).
bool splits_micro_batches(const Plan& plan);

/// Whether some stage deals whole micro-batches to several replicas. O(stages).
bool deals_micro_batches(const Plan& plan);

/// The largest product of micro-batches and stages of a plan. Its schedule has up to six actions
/// for each, and must fit into memory.
inline constexpr std::int64_t kMaxStagePasses = 10'000'000;

/// Returns a short description of the devices per stage and the micro-batches. "8:8, 32 of 64" has
/// two stages of eight devices and 32 micro-batches of 64 samples; "16 straight, ..." has 16 stages
/// of one device each; more than four equal stages in a row are counted, as in "6x2:4". Of stages
/// that share devices only the first is listed, followed by "with 2 stages each". ", recomputing"
/// is added if any stage recomputes. O(stages).
std::string shape_of(const Plan& plan);

}  // namespace dapple
