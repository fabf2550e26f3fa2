#include "random_pipeline.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "crowded_ways.h"
#include "measured_reductions.h"
#include "own_times.h"
#include "random_group.h"
#include "random_problem.h"
#include "skips.h"

#include "dapple/plan/validate.h"

namespace dapple::small {

Ranges random_ranges(Dice& dice) {
  if (dice.chance(50)) return {};
  return {.time = 30'000,
          .bytes = 20'000,
          .least_bandwidth = 100'000'000,
          .most_bandwidth = 9'000'000'000,
          .latency = 5'000};
}

Link random_link(Dice& dice, const Ranges& ranges) {
  std::int64_t bandwidth = dice.roll(ranges.least_bandwidth, ranges.most_bandwidth);
  if (dice.chance(50)) bandwidth -= bandwidth % ranges.least_bandwidth;
  return {{bandwidth}, {dice.roll(0, ranges.latency)}};
}

namespace {

Measurement random_measurement(Dice& dice, const Ranges& ranges, std::int64_t batch_size) {
  Measurement measurement;
  measurement.batch_size = batch_size;
  measurement.forward = {dice.roll(0, ranges.time)};
  measurement.backward = {dice.roll(0, ranges.time)};
  measurement.output = {dice.chance(15) ? 0 : dice.roll(1, ranges.bytes)};
  measurement.stash = {dice.roll(0, ranges.bytes)};
  measurement.workspace = {dice.roll(0, ranges.bytes)};
  return measurement;
}

}  // namespace

ModelProfile random_model(Dice& dice, const Ranges& ranges) {
  ModelProfile profile = model_of({});
  const std::int64_t layers = dice.roll(1, 8);
  if (dice.chance(30)) profile.batch_scaling = BatchScaling::Floor;
  profile.optimizer.gradient_bytes_per_parameter_byte = Factor{dice.roll(1, 4) * 500'000'000};
  profile.optimizer.state_bytes_per_parameter_byte = Factor{dice.roll(0, 2'000'000'000)};
  profile.optimizer.framework_bytes_per_parameter_byte =
      Factor{profile.optimizer.state_bytes_per_parameter_byte.billionths % 700'000'000};
  if (dice.chance(50)) {
    profile.optimizer.step_ns_per_parameter_byte = Factor{dice.roll(0, 1'000'000'000)};
  }
  for (std::int64_t i = 0; i < layers; ++i) {
    Layer layer;
    layer.name = "layer" + std::to_string(i);
    layer.parameters = {dice.chance(20) ? 0 : dice.roll(1, ranges.bytes)};
    layer.fixed_overhead = {dice.chance(20) ? dice.roll(0, ranges.time / 2) : 0};
    if (i > 1 && dice.chance(30)) {
      layer.inputs.push_back({static_cast<std::int32_t>(dice.roll(0, i - 2))});
    }
    if (i > 0) layer.inputs.push_back({static_cast<std::int32_t>(i - 1)});
    const std::int64_t batch_size = dice.roll(1, 4);
    layer.measurements.push_back(random_measurement(dice, ranges, batch_size));
    if (dice.chance(20)) {
      layer.measurements.push_back(random_measurement(dice, ranges, batch_size + dice.roll(1, 3)));
    }
    profile.layers.push_back(std::move(layer));
  }
  tie_some(dice, profile);
  return profile;
}

namespace {

ServerLinks random_matrix(Dice& dice, const Ranges& ranges, std::int32_t devices) {
  ServerLinks links;
  links.kind = ServerLinks::Kind::Matrix;
  links.host_path = random_link(dice, ranges);
  for (const std::int32_t lanes : {1, 2}) {
    LinkKind kind;
    kind.name = "lanes" + std::to_string(lanes);
    kind.link = random_link(dice, ranges);
    kind.lanes = lanes;
    links.kinds.push_back(kind);
  }
  links.matrix = Eigen::MatrixXi::Constant(devices, devices, kNoLink);
  for (Eigen::Index from = 0; from < devices; ++from) {
    for (Eigen::Index to = 0; to < from; ++to) {
      const auto kind = static_cast<int>(dice.roll(-1, 1));
      links.matrix(from, to) = kind;
      links.matrix(to, from) = kind;
    }
  }
  return links;
}

}  // namespace

TopologyDescription random_cluster(Dice& dice, const Ranges& ranges) {
  std::vector<ServerGroup> groups;
  const std::int64_t count = dice.roll(1, 2);
  for (std::int64_t g = 0; g < count; ++g) {
    ServerGroup group;
    group.name = std::string(1, static_cast<char>('a' + g));
    group.device = "gpu";
    group.count = static_cast<std::int32_t>(dice.roll(1, 2));
    group.devices = static_cast<std::int32_t>(dice.roll(1, 4));
    group.links.port = random_link(dice, ranges);
    if (dice.chance(50)) group.links = random_matrix(dice, ranges, group.devices);
    const std::int64_t nics = dice.roll(1, 2);
    for (std::int64_t n = 0; n < nics; ++n) {
      group.nics.push_back({.source = "", .link = random_link(dice, ranges), .devices = {}});
    }
    groups.push_back(std::move(group));
  }
  TopologyDescription description = description_of(std::move(groups));
  if (dice.chance(50)) description.network = random_link(dice, ranges);
  return description;
}

namespace {

void slow_some_down(Dice& dice, ModelProfile& model, TopologyDescription& description) {
  DeviceKind slow = description.devices.front();
  slow.name = "slow gpu";
  slow.time_scale["gpu"] = Factor{dice.roll(1, 30) * 100'000'000};
  if (dice.chance(30)) measure_on(dice, slow.name, model);
  description.devices.push_back(slow);
  for (ServerGroup& group : description.servers) {
    if (dice.chance(40)) group.device = slow.name;
  }
}

}  // namespace

std::vector<std::int64_t> random_depths(Dice& dice, std::size_t stages,
                                        std::int64_t micro_batches) {
  std::vector<std::int64_t> depths;
  for (std::size_t s = 0; s < stages; ++s) depths.push_back(dice.roll(1, micro_batches));
  std::sort(depths.rbegin(), depths.rend());
  return depths;
}

std::vector<StageShape> random_stages(Dice& dice, std::int32_t layers, std::int32_t devices,
                                      const PlanShape& shape, bool deal) {
  const std::int64_t count = dice.roll(1, std::min<std::int64_t>({layers, devices, 5}));
  std::vector<std::int32_t> free;
  for (std::int32_t device = 0; device < devices; ++device) free.push_back(device);
  if (dice.chance(70)) shuffle(dice, free);
  std::vector<StageShape> stages;
  std::int32_t layers_left = layers;
  for (std::int64_t left = count; left > 0; --left) {
    StageShape stage;
    stage.layers =
        left == 1 ? layers_left : static_cast<std::int32_t>(dice.roll(1, layers_left - left + 1));
    layers_left -= stage.layers;
    stage.dealt = deal && dice.chance(50);
    stage.recompute = dice.chance(25);
    const std::int64_t most =
        std::min<std::int64_t>({4, static_cast<std::int64_t>(free.size()) - left + 1,
                                stage.dealt ? shape.num_micro_batches : shape.micro_batch_size});
    for (std::int64_t r = dice.roll(1, most); r > 0; --r) {
      stage.devices.push_back(free.back());
      free.pop_back();
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

namespace {

/// Gives some stages shares that are not equal: the last replica all samples but one of each other.
/// Without a roll of the dice, which would change the instances behind it.
void skew_shares(std::int64_t micro_batch_size, std::vector<StageShape>& stages) {
  for (StageShape& stage : stages) {
    const auto replicas = static_cast<std::int64_t>(stage.devices.size());
    if (stage.dealt || replicas == 1 || (stage.layers + replicas + micro_batch_size) % 3 != 0) {
      continue;
    }
    stage.samples.assign(stage.devices.size(), 1);
    stage.samples.back() = micro_batch_size - replicas + 1;
  }
}

/// Lets tensor ranks of the devices send shares of tensors to one another in some instances.
/// Without a roll of the dice, which would change the instances behind it.
void cut_tensors(const Ranges& ranges, const PlanShape& shape, ModelProfile& model) {
  Dice dice(static_cast<std::uint32_t>(shape.bucket_size.count + 7 * shape.micro_batch_size));
  if (!dice.chance(40)) return;
  const Link link = random_link(dice, ranges);
  model.boundaries = Boundaries::ScatterGather;
  model.parallelism.tensor = dice.roll(2, 4);
  model.group.rings[static_cast<std::size_t>(CollectiveMembers::Tensor)] = {
      .members = model.parallelism.tensor,
      .bandwidth = link.bandwidth,
      .latency = link.latency,
      .members_in_server = model.parallelism.tensor};
}

/// Depths may deadlock where stages deal; nothing then.
std::optional<Pipeline> try_random_pipeline(Dice& dice, const RandomChoices& choices) {
  const Ranges ranges = random_ranges(dice);
  ModelProfile model = random_model(dice, ranges);
  if (choices.direct) {
    add_skips(dice, model);
    model.skip_tensors = SkipTensors::Direct;
  }
  TopologyDescription description = random_cluster(dice, ranges);
  if (choices.crowded) {
    crowd_ways(
        dice, [&] { return random_link(dice, ranges); }, description);
  }
  if (choices.measured) measure_reductions(dice, 2 * ranges.bytes, description);
  if (choices.slowdown) {
    const std::int64_t factors[] = {1'000'000'000, 1'126'000'000, 1'500'000'000, 2'000'000'000};
    description.overlap_slowdown = Factor{factors[dice.roll(0, 3)]};
  }
  if (choices.mixed) slow_some_down(dice, model, description);
  std::int32_t devices = 0;
  for (const ServerGroup& group : description.servers) devices += group.count * group.devices;
  PlanShape shape{
      .micro_batch_size = dice.roll(1, 6),
      .num_micro_batches = dice.roll(1, choices.most_micro_batches),
      .gpipe = dice.chance(15),
      .bucket_size = {dice.roll(1, 2 * ranges.bytes)},
      .optimizer = dice.chance(30) ? OptimizerTiming::PerBucket : OptimizerTiming::AtEnd};
  if (choices.sharded && dice.chance(40)) {
    description.shards_optimizer = true;
    shape.optimizer = OptimizerTiming::AtEnd;
  }
  if (choices.sharded && dice.chance(40)) {
    make_devices_groups(dice, model);
    shape.optimizer = OptimizerTiming::AtEnd;
  }
  shape.stages = random_stages(dice, static_cast<std::int32_t>(model.layers.size()), devices, shape,
                               choices.deal);
  skew_shares(shape.micro_batch_size, shape.stages);
  if (choices.cut) cut_tensors(ranges, shape, model);
  shape.depths = random_depths(dice, shape.stages.size(), shape.num_micro_batches);
  if (choices.deal && dice.chance(50)) shuffle(dice, shape.depths);
  if (choices.deal) {
    const Plan plan = plan_of(model, shape);
    const auto layers = static_cast<std::int32_t>(model.layers.size());
    if (!validate(plan, layers, Topology(description)).empty()) return std::nullopt;
    if (!validate(generate(plan), plan).empty()) return std::nullopt;
  }
  return Pipeline(std::move(model), std::move(description), shape);
}

}  // namespace

Pipeline random_pipeline(Dice& dice, const RandomChoices& choices) {
  while (true) {
    std::optional<Pipeline> pipeline = try_random_pipeline(dice, choices);
    if (pipeline) return std::move(*pipeline);
  }
}

bool is_measured(const AllReduceCost& cost) {
  return cost.phases.size() == 1 && cost.phases.front().rounds == 1;
}

std::string text_of(const Pipeline& pipeline) {
  const Plan& plan = pipeline.plan;
  std::string text = pipeline.topology.description().shards_optimizer ? "sharded, " : "";
  if (pipeline.profile.boundaries != Boundaries::Whole) {
    text += std::to_string(pipeline.profile.parallelism.tensor) + " shares, ";
  }
  if (pipeline.profile.group != GroupShape{}) {
    text += "groups of " + std::to_string(pipeline.profile.group.replicas) + " replicas" +
            (pipeline.profile.group.shards_all_state ? " and shards, " : ", ");
  }
  text += "B " + std::to_string(plan.micro_batch_size) + " M " +
          std::to_string(plan.num_micro_batches) + " " + std::string(to_string(plan.family));
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    const StageCost& cost = pipeline.costs.stages[s];
    text += "; K " + std::to_string(plan.warmup_depths[s]) + " on";
    for (const DeviceIndex device : stage.devices) {
      text += " " + pipeline.topology.device(device).name;
    }
    text += " " + std::string(to_string(stage.replication)) +
            (stage.recompute ? " recompute" : "") + " F " + std::to_string(cost.forward.ns) +
            " B " + std::to_string(cost.backward.ns);
    for (std::size_t k = 0; k < cost.buckets.size(); ++k) {
      text += " R" + std::to_string(k) + " " + std::to_string(cost.bucket_ready[k].ns) + "+" +
              std::to_string(cost.buckets[k].time.ns);
    }
    if (s < pipeline.costs.boundaries.size()) {
      const BoundaryCost& boundary = pipeline.costs.boundaries[s];
      text += " c " + std::to_string(boundary.forward.front().time.ns) + " c' " +
              std::to_string(boundary.backward.front().time.ns);
    }
  }
  return text;
}

}  // namespace dapple::small
