#include "dapple/exec/training_job.h"

#include <fmt/format.h>

#include <utility>

#include "dapple/core/error.h"
#include "dapple/schedule/schedule.h"
#include "reduction_groups.h"

namespace dapple {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

/// Layers are named in messages: `repeat` makes others of an array's entries.
constexpr const char* kLayers = "/model/profile/layers";

bool is_chained(const ModelProfile& profile, std::size_t layer) {
  const std::vector<LayerIndex>& inputs = profile.layers[layer].inputs;
  if (layer == 0) return inputs.empty();
  return inputs.size() == 1 && inputs.front().position() == layer - 1;
}

std::int64_t parameter_bytes(const nn::Module& module) {
  std::int64_t bytes = 0;
  for (const nn::ParameterSpec& parameter : module.parameters()) {
    bytes += nn::count_of(parameter.shape) * kFloat;
  }
  return bytes;
}

/// What is wrong with one layer, if anything.
std::optional<Violation> layer_fault(const ModelProfile& profile,
                                     const std::vector<ModelLayer>& layers, std::size_t position) {
  const Layer& layer = profile.layers[position];
  if (!is_chained(profile, position)) {
    return Violation{kLayers,
                     fmt::format("expected a chain, in which \"{}\" takes what the layer before it "
                                 "makes and nothing else, got other inputs",
                                 layer.name)};
  }
  const std::int64_t parameters = parameter_bytes(*layers[position].module);
  if (layer.parameters.count != parameters) {
    return Violation{
        kLayers,
        fmt::format("expected parameter_bytes {} for what \"{}\" does, in single precision, got "
                    "{}; dapple-exec profile measures such a profile",
                    parameters, layer.name, layer.parameters.count)};
  }
  const ModelLayer& runnable = layers[position];
  const Measurement& largest = layer.measurements.back();
  const std::int64_t output =
      nn::count_of(runnable.module->output_shape(runnable.input)) * largest.batch_size * kFloat;
  if (position + 1 < layers.size() && largest.output.count != output) {
    return Violation{kLayers,
                     fmt::format("expected output_bytes {} at batch size {} for what \"{}\" makes, "
                                 "in single precision, got {}; dapple-exec profile measures such a "
                                 "profile",
                                 output, largest.batch_size, layer.name, largest.output.count)};
  }
  return std::nullopt;
}

std::optional<Violation> loss_fault(const std::vector<ModelLayer>& layers) {
  const ModelLayer& last = layers.back();
  if (nn::count_of(last.module->output_shape(last.input)) == 1) return std::nullopt;
  return Violation{
      kLayers,
      fmt::format("expected a loss, one number per sample, in the end, got \"{}\"", last.name)};
}

}  // namespace

std::vector<Violation> training_faults(const Plan& plan, const ModelProfile& profile,
                                       const std::vector<ModelLayer>& layers,
                                       const TrainingSettings& settings) {
  std::vector<Violation> faults;
  for (std::size_t i = 0; i < layers.size() && faults.empty(); ++i) {
    if (auto fault = layer_fault(profile, layers, i)) faults.push_back(std::move(*fault));
  }
  if (faults.empty()) {
    if (auto fault = loss_fault(layers)) faults.push_back(std::move(*fault));
  }
  if (profile.optimizer.gradient_bytes_per_parameter_byte != kOne) {
    faults.push_back({"/model/profile/optimizer/gradient_bytes_per_parameter_byte",
                      "expected gradients in single precision, 1 byte per byte of parameters"});
  }
  if (settings.clip_norm && plan.gradients.optimizer == OptimizerTiming::PerBucket) {
    faults.push_back({"/gradients/optimizer",
                      "expected \"at-end\", as gradients are to be clipped by the norm of all of "
                      "them, got \"per-bucket\""});
  }
  return faults;
}

TrainingJob make_training_job(const Plan& plan, const ModelProfile& profile,
                              const Topology& topology, std::vector<ModelLayer> layers,
                              BatchSource batches, const TrainingSettings& settings) {
  const PlanCost costs = CostModel(profile, topology).plan_cost(plan);
  TrainingJob job{.plan = plan,
                  .devices = device_schedules(generate(plan), costs),
                  .buckets = {},
                  .groups = reduction_groups(plan, costs, topology),
                  .layers = std::move(layers),
                  .batches = std::move(batches),
                  .settings = settings};
  for (const StagePlan& stage : plan.stages) {
    std::optional<GradientBuckets> buckets = match_buckets(profile, stage);
    check(buckets.has_value(), "a plan's buckets are not its layers'");
    job.buckets.push_back(std::move(*buckets));
  }
  return job;
}

TrainingJob on_one_device(const TrainingJob& job) {
  Plan plan{.global_batch_size = job.plan.global_batch_size,
            .micro_batch_size = job.plan.micro_batch_size,
            .num_micro_batches = job.plan.num_micro_batches,
            .family = ScheduleFamily::OneFOneB,
            .warmup_depths = {1},
            .stages = {}};
  StagePlan stage;
  stage.layers = {0, static_cast<std::int32_t>(job.layers.size())};
  stage.devices = {job.devices.front().device};
  plan.stages.push_back(std::move(stage));
  // Nothing is sent or reduced, so that no costs are asked for.
  std::vector<DeviceSchedule> devices = device_schedules(generate(plan), PlanCost{});
  return {.plan = std::move(plan),
          .devices = std::move(devices),
          .buckets = {GradientBuckets{}},
          .groups = {{}},
          .layers = job.layers,
          .batches = job.batches,
          .settings = job.settings};
}

}  // namespace dapple
