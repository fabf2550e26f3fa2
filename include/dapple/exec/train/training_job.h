// What all devices that train a model by a plan have in common: the plan's actions, the layers as
// modules, the samples, and how gradients change parameters.
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
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/topology/topology.h"

namespace dapple::exec {

struct TrainingSettings {
  nn::OptimizerSettings optimizer = {};
  std::optional<double> clip_norm = {};  // the largest norm of all gradients together
  std::uint64_t seed = 1;                // of the parameters before training
  /// Of activations and their gradients; parameters are in single precision in any case. A CPU
  /// computes in no other.
  cuda::Precision precision = cuda::Precision::Float32;
};

struct TrainingJob {
  const nn::ModelLayer& layer(std::int32_t number) const {
    return (*layers)[static_cast<std::size_t>(number)];
  }

  /// What one device needs by the memory model. Requires: it is one of them.
  Bytes memory_of(DeviceIndex device) const;

  Plan plan;
  std::vector<DeviceSchedule> devices;
  std::vector<Bytes> memory;             // of each of them, by the memory model
  std::vector<GradientBuckets> buckets;  // by stage
  ReductionGroups groups;
  std::shared_ptr<const std::vector<nn::ModelLayer>> layers;
  std::vector<Layer> measured;  // the same layers, in the profile
  std::shared_ptr<const Batches> batches;
  TrainingSettings settings;
};

/// What keeps the plan from being trained, with JSON pointers into it: boundaries whose sizes are
/// not those of tensors in the precision (the first that differs), gradients that are not as large
/// as the parameters, or that are to be clipped, or looked at for being numbers, as half precision
/// has to be, where parameters are updated bucket by bucket.
/// O(layers). Requires: costing_faults() is empty, and the layers are the profile's.
std::vector<Violation> training_faults(const Plan& plan, const ModelProfile& profile,
                                       const std::vector<nn::ModelLayer>& layers,
                                       const TrainingSettings& settings);

/// Requires: training_faults() is empty.
TrainingJob make_training_job(const Plan& plan, const ModelProfile& profile,
                              const Topology& topology,
                              std::shared_ptr<const std::vector<nn::ModelLayer>> layers,
                              std::shared_ptr<const Batches> batches,
                              const TrainingSettings& settings);

/// The same model, samples and micro-batches on one device, without a pipeline. As much memory as
/// all devices of the job have together.
TrainingJob on_one_device(const TrainingJob& job);

}  // namespace dapple::exec
