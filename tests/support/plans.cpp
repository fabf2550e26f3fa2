#include "plans.h"

#include <cstddef>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/cost/cost_model.h"
#include "dapple/plan/validate.h"

namespace dapple::small {

Plan plan_of(const ModelProfile& profile, const PlanShape& shape) {
  Plan plan{.global_batch_size = shape.micro_batch_size * shape.num_micro_batches,
            .micro_batch_size = shape.micro_batch_size,
            .num_micro_batches = shape.num_micro_batches,
            .gradients = {.bucket_size = shape.bucket_size, .optimizer = shape.optimizer},
            .family = shape.gpipe ? ScheduleFamily::GPipe : ScheduleFamily::OneFOneB,
            .warmup_depths = shape.depths,
            .stages = {}};
  if (shape.gpipe) plan.warmup_depths.assign(shape.stages.size(), shape.num_micro_batches);
  std::int32_t begin = 0;
  for (const StageShape& figures : shape.stages) {
    StagePlan stage;
    stage.layers = {begin, begin + figures.layers};
    begin = stage.layers.end;
    for (const std::int32_t device : figures.devices) stage.devices.push_back({device});
    stage.replication = figures.dealt ? Replication::Deal : Replication::Split;
    stage.recompute = figures.recompute;
    stage.samples = figures.samples;
    plan.stages.push_back(std::move(stage));
  }
  fill_gradient_buckets(plan, profile);
  return plan;
}

std::string stages_of(const Plan& plan) {
  std::string text;
  for (const StagePlan& stage : plan.stages) {
    if (!text.empty()) text += ' ';
    text += std::to_string(stage.layers.begin) + "-" + std::to_string(stage.layers.end);
    char separator = ':';
    for (const DeviceIndex device : stage.devices) {
      text += separator + std::to_string(device.value);
      separator = ',';
    }
  }
  return text;
}

CostedPlan::CostedPlan(ModelProfile model, TopologyDescription description, Plan made)
    : profile(std::move(model)), topology(std::move(description)), plan(std::move(made)) {
  const auto layers = static_cast<std::int32_t>(profile.layers.size());
  const std::vector<Violation> faults = validate(plan, layers, topology);
  if (!faults.empty()) throw Bug(faults.front().place + ": " + faults.front().message);
  costs = CostModel(profile, topology).plan_cost(plan);
}

CostedPlan::CostedPlan(const ModelProfile& model, TopologyDescription description,
                       const PlanShape& shape)
    : CostedPlan(model, std::move(description), plan_of(model, shape)) {}

CostedPlan straight_plan(const std::vector<LayerFigures>& stages, PlanShape shape,
                         const Link& link) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    shape.stages.push_back({.layers = 1, .devices = {static_cast<std::int32_t>(s)}});
  }
  return {model_of(stages), full_mesh(stages.size(), link), shape};
}

}  // namespace dapple::small
