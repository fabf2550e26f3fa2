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

/// Of one layer, if it makes something else than the profile says.
std::optional<Violation> output_fault(const Layer& layer, const nn::ModelLayer& runnable) {
  const Measurement& largest = layer.measurements.back();
  const std::int64_t output = nn::count_of(runnable.output) * largest.batch_size * kFloat;
  if (largest.output.count == output) return std::nullopt;
  return Violation{kLayers,
                   fmt::format("expected output_bytes {} at batch size {} for what \"{}\" makes, "
                               "in single precision, got {}; dapple-exec profile measures such a "
                               "profile",
                               output, largest.batch_size, layer.name, largest.output.count)};
}

}  // namespace

std::vector<Violation> training_faults(const Plan& plan, const ModelProfile& profile,
                                       const std::vector<nn::ModelLayer>& layers,
                                       const TrainingSettings& settings) {
  std::vector<Violation> faults;
  for (std::size_t i = 0; i + 1 < layers.size() && faults.empty(); ++i) {
    if (auto fault = output_fault(profile.layers[i], layers[i])) faults.push_back(*fault);
  }
  if (profile.optimizer.gradient_bytes_per_parameter_byte != kOne) {
    faults.push_back({"/model/profile/optimizer/gradient_bytes_per_parameter_byte",
                      "expected gradients in single precision, 1 byte per byte of parameters"});
  }
  if (settings.clip_norm && plan.gradients.optimizer == OptimizerTiming::PerBucket) {
    faults.push_back({"/gradients/optimizer_step",
                      "expected \"at-end\", as gradients are to be clipped by the norm of all of "
                      "them, got \"per-bucket\""});
  }
  return faults;
}

TrainingJob make_training_job(const Plan& plan, const ModelProfile& profile,
                              const Topology& topology,
                              std::shared_ptr<const std::vector<nn::ModelLayer>> layers,
                              std::shared_ptr<const Batches> batches,
                              const TrainingSettings& settings) {
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
  stage.layers = {0, static_cast<std::int32_t>(job.layers->size())};
  stage.devices = {job.devices.front().device};
  plan.stages.push_back(std::move(stage));
  // Nothing is sent or reduced, so that no costs are asked for.
  std::vector<DeviceSchedule> devices = device_schedules(generate(plan), PlanCost{});
  return {.plan = std::move(plan),
          .devices = std::move(devices),
          .buckets = {GradientBuckets{}},
          .groups = {},
          .layers = job.layers,
          .batches = job.batches,
          .settings = job.settings};
}

}  // namespace dapple
