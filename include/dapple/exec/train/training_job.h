// The data shared by all devices that train a model by a plan: the plan's actions, the layers as
// modules, the samples, and the optimizer's settings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dapple/cost/buckets.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/train/batches.h"
#include "dapple/nn/model.h"
#include "dapple/nn/optimizer.h"
#include "dapple/nn/shared_layers.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/topology/topology.h"

namespace dapple::exec {

struct TrainingSettings {
  nn::OptimizerSettings optimizer = {};
  /// The norm that all gradients together are clipped to, if any.
  std::optional<double> clip_norm = {};
  /// The seed of the initial parameters.
  std::uint64_t seed = 1;
  /// The precision of activations and their gradients; parameters are always in single precision.
  /// The CPU computes in single precision only.
  cuda::Precision precision = cuda::Precision::Float32;
};

/// A rank of a group whose ranks train on different samples: of N ranks, rank i on every N-th
/// sample of the global batch, from sample i on.
struct SampleRank {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
};

/// A rank of a group in one form of parallelism.
struct FormRank {
  /// Its number in the group.
  std::int64_t number = 0;
  nn::LayerRank layers = {};
  /// Among the ranks that hold shards of all state, outside experts and of the same experts.
  nn::GroupRank shard = {};
  nn::GroupRank expert_shard = {};
  /// Among the ranks that hold the same parameters, outside experts and of the same experts.
  nn::GroupRank copy = {};
  nn::GroupRank expert_copy = {};

  const nn::GroupRank& shards(bool of_experts) const { return of_experts ? expert_shard : shard; }
  const nn::GroupRank& copies(bool of_experts) const { return of_experts ? expert_copy : copy; }
};

/// Returns a rank of a group in one form, without its groups. Requires: the form has so many ranks.
FormRank form_rank(const Parallelism& form, std::int64_t number);

/// What trains a part of the model: a device of the plan or, where those are groups, one of such a
/// group.
struct TrainingDevice {
  /// A device that shares nothing with others.
  TrainingDevice(DeviceIndex alone) : device(alone) {}  // NOLINT(google-explicit-constructor)
  TrainingDevice(DeviceIndex of_plan, std::int64_t rank) : device(of_plan), number(rank) {}

  const FormRank& in(FormIndex form) const { return forms[form.position()]; }

  /// The device of the plan, and the rank's number in it.
  DeviceIndex device;
  std::int64_t number = 0;
  /// By form of the plan's stages; in one whose groups are several of the plan's devices, as a rank
  /// of all of these.
  std::vector<FormRank> forms = std::vector<FormRank>(1);
  SampleRank samples = {};
};

/// Whether stages of the plan have forms that differ in more than what they recompute. O(forms).
bool has_different_groups(const Plan& plan);

struct TrainingJob {
  /// Returns a layer as a rank of a group of its stage runs it, in the form of that. All ranks have
  /// the same shapes.
  const nn::ModelLayer& layer(std::int32_t number, std::int64_t rank = 0) const {
    return (*of_ranks[static_cast<std::size_t>(rank)])[static_cast<std::size_t>(number)];
  }

  /// Each of the plan's devices consists of so many ranks. A group of a form has as many, or is
  /// several devices: first it has the tensor-parallel ranks that have the same part of the same
  /// sequences, then those with other parts, then those with other samples. Those of the last two
  /// kinds together hold the shards of all state. Ranks with different experts follow one another,
  /// whatever their kind.
  std::int64_t ranks() const { return plan.parallelism.group_size(); }
  /// Returns the form in which the ranks run a stage.
  const Parallelism& form(StageIndex stage) const {
    return form_of(plan, plan.stages[stage.position()]);
  }
  /// Whether stages have different groups: then tensors between them are re-sharded, the plan has
  /// the samples of all ranks, and those of a group that have different ones have consecutive ones.
  bool reshards() const { return has_different_groups(plan); }
  /// The ranks of a group that have different samples where all stages have the same groups:
  /// the plan then has the samples of one of them. Otherwise 1.
  std::int64_t sample_ranks() const {
    return reshards() ? 1 : plan.parallelism.replicas_in_group();
  }
  /// The samples of a step, of all ranks.
  std::int64_t global_batch_size() const { return plan.global_batch_size * sample_ranks(); }
  /// Whether a stage has several replicas that hold a shard each of the optimizer's state.
  bool has_shards_of_replicas(StageIndex stage) const {
    return plan.parallelism.shards_over_replicas() &&
           replicas_of(plan.stages[stage.position()]) > 1;
  }
  /// Whether ranks that hold the same parameters of a stage reduce a part of the gradients each.
  bool scatters_copies(StageIndex stage) const {
    const Parallelism& own = form(stage);
    return own.full_shards == 1 && std::max(own.copies(), own.expert_copies()) > 1;
  }
  /// Whether such parts are gathered once they are reduced, as every rank updates all parameters.
  /// O(stages).
  bool gathers_copies() const;
  /// Returns the number, among all devices, of a rank of one of the plan's devices.
  DeviceIndex number_of(DeviceIndex device, std::int64_t rank) const {
    return {static_cast<std::int32_t>(device.value * ranks() + rank)};
  }
  /// Returns the number, among all devices, of a rank of the group that is a replica of a stage.
  DeviceIndex number_in_replica(StageIndex stage, std::size_t replica, std::int64_t rank) const;
  /// Returns a rank of one of the plan's devices, without its groups.
  TrainingDevice device_of(DeviceIndex device, std::int64_t rank) const;
  /// Returns the same rank by its number among all devices.
  TrainingDevice device_numbered(DeviceIndex number) const;
  /// Returns the forms of the stages of one of the plan's devices, each once, in ascending order.
  std::vector<FormIndex> forms_on(DeviceIndex device) const;
  /// Returns the numbers of all ranks of `devices`, those of one device after those of another.
  std::vector<DeviceIndex> numbers() const;

  /// Returns the schedule of a device. Throws Bug unless it is one of `devices`.
  const DeviceSchedule& schedule_of(DeviceIndex device) const;

  /// Returns the memory that a device needs by the memory model. Requires: the device is one of
  /// `devices`.
  Bytes memory_of(DeviceIndex device) const;

  /// The plan of the samples of one of the ranks of a group that have different ones, or of all of
  /// them: see reshards().
  Plan plan;
  std::vector<DeviceSchedule> devices;
  /// The memory that each of `devices` needs by the memory model.
  std::vector<Bytes> memory;
  /// The gradient buckets of each stage.
  std::vector<GradientBuckets> buckets;
  ReductionGroups groups;
  /// The whole layers.
  std::shared_ptr<const std::vector<nn::ModelLayer>> layers;
  /// The layers as each rank of a group runs them, by rank, of a group of the largest size; a
  /// single rank has whole ones.
  std::vector<std::shared_ptr<const std::vector<nn::ModelLayer>>> of_ranks;
  /// The same layers as measured in the profile.
  std::vector<Layer> measured;
  std::shared_ptr<const Batches> batches;
  TrainingSettings settings;
  /// By stage, whether over the boundary behind it each tensor-parallel rank sends its share of
  /// what all of them have, and gathers what it receives from them. Empty if none do, as where
  /// tensors are re-sharded.
  std::vector<bool> sends_shares = {};
};

/// Returns what prevents the plan from being trained, with JSON pointers into it: a layer's size of
/// parameters, in its stage's form, that is not that of a rank's, or output size that is not that
/// of its tensor in the precision (only the first); gradients whose size is not that of the
/// parameters; and parameters updated bucket by bucket although gradients are to be clipped, or
/// checked to be finite as in half precision. O(layers). Requires: costing_faults() is empty, and
/// the layers are the profile's as a rank runs them.
std::vector<Violation> training_faults(const Plan& plan, const ModelProfile& profile,
                                       const std::vector<nn::ModelLayer>& layers,
                                       const TrainingSettings& settings);

/// Returns the layers as a rank runs them, those of each stage in its form. Throws
/// Error(BadInput), as nn::share_model() does. O(forms * layers). Requires: the forms of the rank
/// are those of the plan.
std::vector<nn::ModelLayer> layers_by_stage(const std::vector<nn::ModelLayer>& layers,
                                            const Plan& plan, const std::vector<FormRank>& forms,
                                            const std::string& source_name);

/// Returns the parts of each layer of a stage that are computed again, of those that the stage's
/// form names: of the layers that have any of them, those that it selects. O(layers).
std::vector<RecomputedParts> recomputed_by_layer(const TrainingJob& job, StageIndex stage);

/// Whether a rank shares layers with no other, and keeps all, in every form. O(forms).
bool runs_whole_layers(const std::vector<FormRank>& forms);

/// Returns the layers as each rank of the plan's largest groups runs them, those of each stage in
/// its form; smaller groups have the first ranks only. Throws Error(BadInput), as nn::share_model()
/// does. O(ranks * forms * layers).
std::vector<std::shared_ptr<const std::vector<nn::ModelLayer>>> layers_of_ranks(
    const std::shared_ptr<const std::vector<nn::ModelLayer>>& layers, const Plan& plan,
    const std::string& source_name);

/// Makes the job that trains by a plan. Throws as layers_of_ranks() does. Requires:
/// training_faults() is empty, and ranks of a group with different samples divide the plan's
/// micro-batch or, where stages have different groups, each of those with different experts has a
/// sample at least.
TrainingJob make_training_job(const Plan& plan, const ModelProfile& profile,
                              const Topology& topology,
                              std::shared_ptr<const std::vector<nn::ModelLayer>> layers,
                              std::shared_ptr<const Batches> batches,
                              const TrainingSettings& settings);

/// Returns a job with the same model, samples and micro-batches on one device, without a pipeline.
/// Its device has as much memory as all devices of the job together.
TrainingJob on_one_device(const TrainingJob& job);

}  // namespace dapple::exec
