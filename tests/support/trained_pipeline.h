// Small models trained by random plans on threads, over any backend, for the executor's tests.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dapple/exec/train/device_training.h"
#include "dapple/plan/validate.h"
#include "dapple/planner/families/reschedule.h"
#include "job.h"
#include "random_pipeline.h"
#include "trainable.h"

namespace dapple::small {

/// What all devices together have done in some iterations.
struct Outcome {
  struct Iteration {
    double loss = 0;
    exec::NamedTensors before;  // the model's tensors and the optimizer's
    exec::NamedTensors gradients;
    Bytes sent;  // by the iteration itself
  };
  std::vector<Iteration> iterations;
  exec::NamedTensors parameters;  // in the end
  std::map<std::pair<DeviceIndex, StageIndex>, exec::Held> held;
};

inline exec::NamedTensors whole_model(exec::DeviceTraining& device) {
  exec::NamedTensors tensors = device.gather(exec::TensorKind::Parameters);
  tensors.merge(device.gather(exec::TensorKind::State));
  return tensors;
}

/// An end over one on threads.
using MakeEnd = std::function<std::unique_ptr<exec::Transport>(
    std::unique_ptr<exec::Transport> below, DeviceIndex device)>;

inline Outcome train(
    const exec::TrainingJob& job, const Topology& topology, std::int64_t iterations,
    const exec::MakeBackend& make_backend = exec::make_cpu_backend,
    const MakeEnd& make_end = [](auto below, DeviceIndex) { return below; }) {
  const std::vector<DeviceIndex> devices = job.numbers();
  exec::ThreadNetwork network(topology, devices, {});
  Outcome outcome;
  std::mutex mutex;
  side_by_side(devices.size(), [&](std::size_t i) {
    const auto end = make_end(network.end_of(devices[i]), devices[i]);
    exec::DeviceTraining device(job, devices[i], *end, make_backend);
    for (std::int64_t n = 0; n < iterations; ++n) {
      Outcome::Iteration iteration;
      iteration.before = whole_model(device);
      end->barrier();
      const Bytes sent = network.sent();
      end->barrier();
      device.run(n);
      end->barrier();
      iteration.sent = network.sent() - sent;
      end->barrier();
      iteration.loss = device.loss();
      iteration.gradients = device.gather(exec::TensorKind::Gradients);
      if (device.is_lead()) outcome.iterations.push_back(std::move(iteration));
    }
    exec::NamedTensors parameters = device.gather(exec::TensorKind::Parameters);
    const std::lock_guard lock(mutex);
    if (device.is_lead()) outcome.parameters = std::move(parameters);
    for (const StageIndex stage : device.backend().stages()) {
      outcome.held[{devices[i], stage}] = device.backend().most_held(stage);
    }
  });
  return outcome;
}

inline double norm_of(const nn::Tensor& tensor) {
  double sum = 0;
  for (const float value : tensor.values) sum += double{value} * double{value};
  return std::sqrt(sum);
}

inline double difference_of(const nn::Tensor& a, const nn::Tensor& b) {
  nn::Tensor difference = a;
  for (std::size_t i = 0; i < a.values.size(); ++i) difference.values[i] -= b.values[i];
  return norm_of(difference);
}

/// Norm of the difference over the norm of all gradients of the layer: the gradient of a bias may
/// cancel out to nothing but rounding.
inline void require_close(const exec::NamedTensors& tensors, const exec::NamedTensors& expected,
                          double tolerance = 1e-5) {
  REQUIRE(tensors.size() == expected.size());
  std::map<std::string, double> layer_norms;
  const auto layer_of = [](const std::string& name) { return name.substr(0, name.find('.')); };
  for (const auto& [name, tensor] : expected) {
    double& norm = layer_norms[layer_of(name)];
    norm = std::hypot(norm, norm_of(tensor));
  }
  for (const auto& [name, tensor] : expected) {
    INFO(name);
    const nn::Tensor& other = tensors.at(name);
    REQUIRE(other.shape == tensor.shape);
    REQUIRE(difference_of(other, tensor) <= tolerance * layer_norms[layer_of(name)] + 1e-9);
  }
}

inline void require_same(const exec::NamedTensors& tensors, const exec::NamedTensors& expected) {
  REQUIRE(tensors.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    INFO(name);
    REQUIRE(tensors.at(name).shape == tensor.shape);
    REQUIRE(tensors.at(name).values == tensor.values);
  }
}

inline exec::TrainingJob job_of(const Trainable& model, const Pipeline& pipeline,
                                const exec::TrainingSettings& settings) {
  const auto of_ranks = exec::layers_of_ranks(model.layers, pipeline.plan, "model");
  REQUIRE(exec::training_faults(pipeline.plan, model.profile, *of_ranks.front(), settings).empty());
  return exec::make_training_job(pipeline.plan, model.profile, pipeline.topology, model.layers,
                                 model.batches, settings);
}

inline exec::TrainingSettings random_settings(Dice& dice, const Plan& plan) {
  constexpr nn::OptimizerKind kKinds[] = {nn::OptimizerKind::Sgd, nn::OptimizerKind::Momentum,
                                          nn::OptimizerKind::Adam, nn::OptimizerKind::AdamW};
  exec::TrainingSettings settings{
      .optimizer = {.kind = kKinds[dice.roll(0, 3)], .learning_rate = 0.05F},
      .seed = static_cast<std::uint64_t>(dice.roll(1, 1'000))};
  const bool may_clip = plan.gradients.optimizer == OptimizerTiming::AtEnd;
  if (may_clip && dice.chance(30)) settings.clip_norm = 0.1;
  return settings;
}

/// 1F1B or GPipe, with any replicas.
inline std::optional<Pipeline> random_plan(Dice& dice, const Trainable& model,
                                           std::int64_t replicas, bool deal) {
  PlanShape shape{
      .micro_batch_size = dice.roll(replicas, replicas + 3),
      .num_micro_batches = dice.roll(1, 6),
      .gpipe = dice.chance(20),
      .bucket_size = {dice.roll(1, 600)},
      .optimizer = dice.chance(40) ? OptimizerTiming::PerBucket : OptimizerTiming::AtEnd};
  const auto layers = static_cast<std::int64_t>(model.layers->size());
  const std::int64_t stages = dice.roll(1, std::min<std::int64_t>(4, layers));
  std::int32_t device = 0;
  std::int64_t left = layers;
  for (std::int64_t s = stages; s > 0; --s) {
    StageShape stage;
    stage.layers = static_cast<std::int32_t>(s == 1 ? left : dice.roll(1, left - s + 1));
    left -= stage.layers;
    stage.dealt = deal && dice.chance(50);
    stage.recompute = dice.chance(35);
    const std::int64_t most = stage.dealt ? std::min(replicas, shape.num_micro_batches) : replicas;
    for (std::int64_t r = dice.roll(1, most); r > 0; --r) stage.devices.push_back(device++);
    shape.stages.push_back(std::move(stage));
  }
  shape.depths = random_depths(dice, shape.stages.size(), shape.num_micro_batches);
  // Some on two servers alike, where reductions are hierarchical.
  const TopologyDescription description =
      device % 2 == 0 && dice.chance(50)
          ? cluster({.servers = 2, .devices = device / 2, .inside = {bytes_per_ns(50), {}}})
          : full_mesh(static_cast<std::size_t>(device), {bytes_per_ns(1), {}});
  const Plan plan = plan_of(model.profile, shape);
  if (!validate(plan, static_cast<std::int32_t>(layers), Topology(description)).empty() ||
      !validate(generate(plan), plan).empty()) {
    return std::nullopt;  // dealt micro-batches may wait for each other
  }
  return Pipeline(model.profile, description, plan);
}

/// The same plan with the optimizer's state sharded over the replicas of each stage.
inline Pipeline with_sharded_state(const Pipeline& pipeline) {
  Plan plan = pipeline.plan;
  plan.gradients.optimizer = OptimizerTiming::AtEnd;
  plan.parallelism.shards_optimizer = true;
  TopologyDescription description = pipeline.topology.description();
  description.shards_optimizer = true;
  return {pipeline.profile, std::move(description), std::move(plan)};
}

/// The same job without sharded state. It reduces in the same groups, so that all sums are added up
/// in the same order.
inline exec::TrainingJob with_whole_state(exec::TrainingJob job) {
  job.plan.parallelism.shards_optimizer = false;
  for (std::vector<exec::ReductionGroup>& stage : job.groups.buckets) {
    for (exec::ReductionGroup& bucket : stage) bucket.is_scattered = false;
  }
  return job;
}

/// The plan's devices under another family; nothing where the family does not take them.
inline std::optional<Pipeline> under(const Pipeline& pipeline, const planner::Reschedule& options) {
  auto made = planner::reschedule(pipeline.plan, pipeline.profile, pipeline.topology, options);
  if (std::holds_alternative<planner::NoSchedule>(made)) return std::nullopt;
  Plan plan = std::get<planner::Rescheduled>(std::move(made)).plan;
  fill_gradient_buckets(plan, pipeline.profile);
  return Pipeline(pipeline.profile, pipeline.topology.description(), plan);
}

/// With as many stages on each device, or the order, that the family needs.
inline std::optional<Pipeline> under_family(const Pipeline& pipeline, ScheduleFamily family,
                                            std::int64_t evaluations) {
  planner::Reschedule options{.family = family, .evaluations = evaluations};
  if (has_loops(family)) options.chunks_per_device = 2;
  if (family == ScheduleFamily::Given) {
    const auto ordered = under(pipeline, {.family = ScheduleFamily::ZeroBubbleH2});
    if (!ordered) return std::nullopt;
    options.order = ordered->plan.order;
  }
  return under(pipeline, options);
}

}  // namespace dapple::small
