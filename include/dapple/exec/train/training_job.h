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

struct TrainingJob {
  const nn::ModelLayer& layer(std::int32_t number) const {
    return (*layers)[static_cast<std::size_t>(number)];
  }

  /// Returns the memory that a device needs by the memory model. Requires: the device is one of
  /// `devices`.
  Bytes memory_of(DeviceIndex device) const;

  Plan plan;
  std::vector<DeviceSchedule> devices;
  /// The memory that each of `devices` needs by the memory model.
  std::vector<Bytes> memory;
  /// The gradient buckets of each stage.
  std::vector<GradientBuckets> buckets;
  ReductionGroups groups;
  std::shared_ptr<const std::vector<nn::ModelLayer>> layers;
  /// The same layers as measured in the profile.
  std::vector<Layer> measured;
  std::shared_ptr<const Batches> batches;
  TrainingSettings settings;
};

/// Returns what prevents the plan from being trained, with JSON pointers into it: a layer's output
/// size that is not that of its tensor in the precision (only the first); gradients whose size is
/// not that of the parameters; and parameters updated bucket by bucket although gradients are to be
/// clipped, or checked to be finite as in half precision.
/// O(layers). Requires: costing_faults() is empty, and the layers are the profile's.
std::vector<Violation> training_faults(const Plan& plan, const ModelProfile& profile,
                                       const std::vector<nn::ModelLayer>& layers,
                                       const TrainingSettings& settings);

/// Makes the job that trains by a plan. Requires: training_faults() is empty.
TrainingJob make_training_job(const Plan& plan, const ModelProfile& profile,
                              const Topology& topology,
                              std::shared_ptr<const std::vector<nn::ModelLayer>> layers,
                              std::shared_ptr<const Batches> batches,
                              const TrainingSettings& settings);

/// Returns a job with the same model, samples and micro-batches on one device, without a pipeline.
/// Its device has as much memory as all devices of the job together.
TrainingJob on_one_device(const TrainingJob& job);

}  // namespace dapple::exec
