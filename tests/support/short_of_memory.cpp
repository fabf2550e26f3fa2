#include "short_of_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "dapple/cost/cost_model.h"

namespace dapple::small {
namespace {

std::vector<LayerFigures> random_layers(Dice& dice, std::int64_t count, bool has_weights) {
  std::vector<LayerFigures> layers;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t stash = dice.roll(5, 60);
    layers.push_back({.forward = dice.roll(5, 60),
                      .backward = dice.roll(8, 120),
                      .output = dice.roll(1, std::max<std::int64_t>(2, stash)),
                      .parameters = has_weights ? dice.roll(20, 200) : dice.roll(0, 60),
                      .stash = stash,
                      .workspace = dice.chance(30) ? dice.roll(0, 40) : 0});
  }
  return layers;
}

/// Each stage's devices: one, or in a crowd one to three, anywhere.
std::vector<StageShape> random_shapes(Dice& dice, std::int64_t stages, std::int64_t layers,
                                      std::vector<std::int32_t> free, bool is_crowded) {
  std::vector<StageShape> shapes;
  for (std::int64_t left = stages; left > 0; --left) {
    StageShape shape;
    shape.layers = static_cast<std::int32_t>(left == 1 ? layers : dice.roll(1, layers - left + 1));
    layers -= shape.layers;
    shape.recompute = dice.chance(15);
    const auto spare = static_cast<std::int64_t>(free.size()) - left;
    const std::int64_t replicas =
        is_crowded ? dice.roll(1, 1 + std::min<std::int64_t>(2, spare)) : 1;
    for (std::int64_t r = 0; r < replicas; ++r) {
      const auto pick =
          static_cast<std::size_t>(dice.roll(0, static_cast<std::int64_t>(free.size()) - 1));
      shape.devices.push_back(free[pick]);
      free.erase(free.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

/// What the fullest device needs at those depths.
Bytes needed(const CostedPlan& plan, const std::vector<std::int64_t>& depths) {
  Plan changed = plan.plan;
  changed.warmup_depths = depths;
  const PlanCost costs = CostModel(plan.profile, plan.topology).plan_cost(changed);
  Bytes most;
  for (const StageCost& stage : costs.stages) {
    for (const ReplicaCost& replica : stage.replicas) {
      most = std::max(most, replica.memory.peak());
    }
  }
  return most;
}

}  // namespace

ShortOfMemory random_short_of_memory(Dice& dice, bool is_crowded) {
  const std::int64_t stages = dice.roll(2, 3);
  const std::int64_t layers = dice.roll(stages, stages + 2);
  TopologyDescription description =
      cluster({.servers = is_crowded ? 2 : 3,
               .devices = is_crowded ? static_cast<std::int32_t>(dice.roll(2, 3)) : 1,
               .inside = {bytes_per_ns(dice.roll(1, 8)), {dice.roll(0, 4)}},
               .nics = {{bytes_per_ns(dice.roll(1, 3)), {dice.roll(0, 6)}}}});
  std::vector<std::int32_t> devices(static_cast<std::size_t>(description.servers.front().count *
                                                             description.servers.front().devices));
  std::iota(devices.begin(), devices.end(), 0);
  PlanShape shape{.micro_batch_size = is_crowded ? dice.roll(3, 4) : dice.roll(1, 4),
                  .num_micro_batches = dice.roll(2, 4),
                  .depths = std::vector<std::int64_t>(static_cast<std::size_t>(stages), 1),
                  .bucket_size = {dice.roll(20, 300)}};
  shape.stages = random_shapes(dice, stages, layers, std::move(devices), is_crowded);
  ModelProfile profile = model_of(random_layers(dice, layers, is_crowded));
  if (dice.chance(50)) {
    profile.optimizer.step_ns_per_parameter_byte = Factor{dice.roll(0, 300'000'000)};
  }
  const CostedPlan roomy(profile, description, shape);
  const Bytes least = needed(roomy, shape.depths);
  description.devices.front().memory = least + Bytes{least.count * dice.roll(0, 300) / 1000};
  std::vector<std::int64_t> depths = shape.depths;
  for (std::size_t s = depths.size(); s-- > 0;) {
    depths[s] = dice.roll(s + 1 == depths.size() ? 1 : depths[s + 1], shape.num_micro_batches);
  }
  if (needed(roomy, depths) <= description.devices.front().memory) shape.depths = depths;
  constexpr ScheduleFamily kFamilies[] = {
      ScheduleFamily::ListScheduled, ScheduleFamily::ZeroBubbleH1, ScheduleFamily::ZeroBubbleH2};
  return {.made = CostedPlan(profile, description, shape), .family = kFamilies[dice.roll(0, 2)]};
}

}  // namespace dapple::small
