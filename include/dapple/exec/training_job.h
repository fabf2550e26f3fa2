// What all devices that train a model by a plan have in common: the plan's actions, the layers as
// modules, the samples, and how gradients change parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dapple/cost/costs.h"
#include "dapple/exec/all_reduce.h"
#include "dapple/nn/module.h"
#include "dapple/nn/optimizer.h"
#include "dapple/nn/tensor.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// A layer that can be run.
struct ModelLayer {
  std::string name;
  std::shared_ptr<const nn::Module> module;
  nn::Shape input;  // of one sample
};

/// Samples [begin, end) of the global batch of an iteration, as the model's first layer and its
/// loss take them: functions of these numbers alone, so that every device makes its own.
struct BatchSource {
  std::function<nn::Tensor(std::int64_t iteration, SampleRange samples)> inputs;
  std::function<nn::Tensor(std::int64_t iteration, SampleRange samples)> targets;
};

struct TrainingSettings {
  nn::OptimizerSettings optimizer = {};
  std::optional<double> clip_norm = {};  // the largest norm of all gradients together
  std::uint64_t seed = 1;                // of the parameters before training
};

struct TrainingJob {
  Plan plan;
  std::vector<DeviceSchedule> devices;
  std::vector<GradientBuckets> buckets;             // by stage
  std::vector<std::vector<ReductionGroup>> groups;  // by stage and bucket
  std::vector<ModelLayer> layers;
  BatchSource batches;
  TrainingSettings settings;
};

/// What keeps the plan from being trained, with JSON pointers into it or its profile: layers that
/// are no chain, sizes that are not those of single-precision tensors (the first that differs),
/// gradients that are to be clipped where parameters are updated bucket by bucket. O(layers).
/// Requires: costing_faults() is empty.
std::vector<Violation> training_faults(const Plan& plan, const ModelProfile& profile,
                                       const std::vector<ModelLayer>& layers,
                                       const TrainingSettings& settings);

/// Requires: training_faults() is empty.
TrainingJob make_training_job(const Plan& plan, const ModelProfile& profile,
                              const Topology& topology, std::vector<ModelLayer> layers,
                              BatchSource batches, const TrainingSettings& settings);

/// The same model, samples and micro-batches on one device, without a pipeline.
TrainingJob on_one_device(const TrainingJob& job);

}  // namespace dapple
