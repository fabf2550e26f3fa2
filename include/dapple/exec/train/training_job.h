// The data shared by all devices that train a model by a plan: the plan's actions, the layers as
// modules, the samples, and the optimizer's settings.
#pragma once

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

/// What trains a part of the model: a device of the plan or, where those are groups, one of such a
/// group.
struct TrainingDevice {
  /// A device that shares nothing with others.
  TrainingDevice(DeviceIndex alone) : device(alone) {}  // NOLINT(google-explicit-constructor)
  TrainingDevice(DeviceIndex of_plan, std::int64_t rank) : device(of_plan), number(rank) {}

  /// The device of the plan, and the rank's number in it.
  DeviceIndex device;
  std::int64_t number = 0;
  nn::LayerRank layers = {};
  /// Among the ranks that hold shards of all state.
  nn::GroupRank shard = {};
  /// Among the ranks that hold the same parameters, outside experts and of the same experts.
  nn::GroupRank copy = {};
  nn::GroupRank expert_copy = {};
  SampleRank samples = {};
};

struct TrainingJob {
  /// Returns a layer as a rank runs it. All ranks have the same shapes.
  const nn::ModelLayer& layer(std::int32_t number, std::int64_t rank = 0) const {
    return (*of_ranks[static_cast<std::size_t>(rank)])[static_cast<std::size_t>(number)];
  }

  /// Each of the plan's devices consists of so many ranks: first of the tensor-parallel ones that
  /// have the same part of the same sequences, then of those with other parts, then of those with
  /// other samples. Those of the last two kinds together hold the shards of all state. Ranks with
  /// different experts follow one another, whatever their kind.
  std::int64_t ranks() const { return plan.parallelism.group_size(); }
  std::int64_t tensor_ranks() const { return plan.parallelism.tensor; }
  std::int64_t context_ranks() const { return plan.parallelism.context; }
  std::int64_t expert_ranks() const { return plan.parallelism.experts; }
  std::int64_t shard_ranks() const { return plan.parallelism.full_shards; }
  std::int64_t sample_ranks() const { return plan.parallelism.replicas_in_group(); }
  /// The samples of a step, of all ranks.
  std::int64_t global_batch_size() const { return plan.global_batch_size * sample_ranks(); }
  /// Whether ranks that hold the same parameters reduce a part of the gradients each.
  bool scatters_copies() const {
    return shard_ranks() == 1 && expert_ranks() == 1 && ranks() > tensor_ranks();
  }
  /// Returns the number, among all devices, of a rank of one of the plan's devices.
  DeviceIndex number_of(DeviceIndex device, std::int64_t rank) const {
    return {static_cast<std::int32_t>(device.value * ranks() + rank)};
  }
  /// Returns a rank of one of the plan's devices, without its groups.
  TrainingDevice device_of(DeviceIndex device, std::int64_t rank) const;
  /// Returns the numbers of all ranks of `devices`, those of one device after those of another.
  std::vector<DeviceIndex> numbers() const;

  /// Returns the memory that a device needs by the memory model. Requires: the device is one of
  /// `devices`.
  Bytes memory_of(DeviceIndex device) const;

  /// The plan of the samples of one of the ranks of a group that have different ones.
  Plan plan;
  std::vector<DeviceSchedule> devices;
  /// The memory that each of `devices` needs by the memory model.
  std::vector<Bytes> memory;
  /// The gradient buckets of each stage.
  std::vector<GradientBuckets> buckets;
  ReductionGroups groups;
  /// The whole layers.
  std::shared_ptr<const std::vector<nn::ModelLayer>> layers;
  /// The layers as each rank of a device runs them, by rank; a single rank has whole ones.
  std::vector<std::shared_ptr<const std::vector<nn::ModelLayer>>> of_ranks;
  /// The same layers as measured in the profile.
  std::vector<Layer> measured;
  std::shared_ptr<const Batches> batches;
  TrainingSettings settings;
};

/// Returns what prevents the plan from being trained, with JSON pointers into it: a layer's size of
/// parameters that is not that of a rank's, or output size that is not that of its tensor in the
/// precision (only the first); gradients whose size is not that of the parameters; and parameters
/// updated bucket by bucket although gradients are to be clipped, or checked to be finite as in
/// half precision. O(layers). Requires: costing_faults() is empty, and the layers are the profile's
/// as a rank runs them.
std::vector<Violation> training_faults(const Plan& plan, const ModelProfile& profile,
                                       const std::vector<nn::ModelLayer>& layers,
                                       const TrainingSettings& settings);

/// Returns the layers as a rank runs them, those of each stage recomputing what its form does, that
/// of the plan being `rank`'s. Throws Error(BadInput), as nn::share_model() does. O(forms *
/// layers). Requires: the forms of stages differ in what is recomputed only.
std::vector<nn::ModelLayer> layers_by_stage(const std::vector<nn::ModelLayer>& layers,
                                            const Plan& plan, const nn::LayerRank& rank,
                                            const std::string& source_name);

/// Whether a rank shares layers with no other, and keeps all in every stage. O(forms).
bool runs_whole_layers(const Plan& plan, const nn::LayerRank& rank);

/// Returns the layers as each rank of the plan's devices runs them, those of each stage in its
/// form. Throws Error(BadInput), as nn::share_model() does. O(ranks * forms * layers). Requires:
/// the forms of stages differ in recomputed parts only.
std::vector<std::shared_ptr<const std::vector<nn::ModelLayer>>> layers_of_ranks(
    const std::shared_ptr<const std::vector<nn::ModelLayer>>& layers, const Plan& plan,
    const std::string& source_name);

/// Makes the job that trains by a plan. Throws as layers_of_ranks() does. Requires:
/// training_faults() is empty, and ranks of a group with different samples divide the plan's
/// micro-batch.
TrainingJob make_training_job(const Plan& plan, const ModelProfile& profile,
                              const Topology& topology,
                              std::shared_ptr<const std::vector<nn::ModelLayer>> layers,
                              std::shared_ptr<const Batches> batches,
                              const TrainingSettings& settings);

/// Returns a job with the same model, samples and micro-batches on one device, without a pipeline.
/// Its device has as much memory as all devices of the job together.
TrainingJob on_one_device(const TrainingJob& job);

}  // namespace dapple::exec
