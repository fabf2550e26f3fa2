// Random models, clusters and plans, seeded, for properties that must hold for any of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "pipeline.h"

namespace dapple::small {

/// How many instances to try: `count` times the environment variable DAPPLE_TEST_SCALE (1).
inline int scaled(int count) {
  const char* text = std::getenv("DAPPLE_TEST_SCALE");
  const double scale = text == nullptr ? 1 : std::atof(text);
  return std::max(1, static_cast<int>(scale * count));
}

/// The same numbers on every platform, which the standard's distributions do not promise.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(engine_() %
                                             static_cast<std::uint64_t>(most - least + 1));
  }
  bool chance(std::int64_t percent) { return between(1, 100) <= percent; }

  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[static_cast<std::size_t>(
                                   between(0, static_cast<std::int64_t>(i) - 1))]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

struct RandomChoices {
  bool slowdown = false;  // overlap may slow computation down
  bool deal = false;      // stages may deal micro-batches
  std::int64_t most_micro_batches = 7;
};

/// Ranges of figures: small ones make ties, large ones make fractions.
struct Ranges {
  std::int64_t time = 12;
  std::int64_t bytes = 20;
  std::int64_t least_bandwidth = kNanosecondsPerSecond;
  std::int64_t most_bandwidth = 3 * kNanosecondsPerSecond;
  std::int64_t latency = 6;
};
inline Ranges random_ranges(Random& random) {
  if (random.chance(50)) return {};
  return {.time = 30'000,
          .bytes = 20'000,
          .least_bandwidth = 100'000'000,
          .most_bandwidth = 9'000'000'000,
          .latency = 5'000};
}

inline Link random_link(Random& random, const Ranges& ranges) {
  std::int64_t bandwidth = random.between(ranges.least_bandwidth, ranges.most_bandwidth);
  if (random.chance(50)) bandwidth -= bandwidth % ranges.least_bandwidth;
  return {{bandwidth}, {random.between(0, ranges.latency)}};
}

inline Measurement random_measurement(Random& random, const Ranges& ranges,
                                      std::int64_t batch_size) {
  Measurement measurement;
  measurement.batch_size = batch_size;
  measurement.forward = {random.between(0, ranges.time)};
  measurement.backward = {random.between(0, ranges.time)};
  measurement.output = {random.chance(15) ? 0 : random.between(1, ranges.bytes)};
  measurement.stash = {random.between(0, ranges.bytes)};
  measurement.workspace = {random.between(0, ranges.bytes)};
  return measurement;
}

inline ModelProfile random_model(Random& random, const Ranges& ranges) {
  ModelProfile profile = model_of({});
  const std::int64_t layers = random.between(1, 8);
  if (random.chance(30)) profile.batch_scaling = BatchScaling::Floor;
  profile.optimizer.gradient_bytes_per_parameter_byte = Factor{random.between(1, 2) * 500'000'000};
  profile.optimizer.state_bytes_per_parameter_byte = Factor{random.between(0, 2'000'000'000)};
  if (random.chance(50)) {
    profile.optimizer.step_ns_per_parameter_byte = Factor{random.between(0, 1'000'000'000)};
  }
  for (std::int64_t i = 0; i < layers; ++i) {
    Layer layer;
    layer.name = "layer" + std::to_string(i);
    layer.parameters = {random.chance(20) ? 0 : random.between(1, ranges.bytes)};
    layer.fixed_overhead = {random.chance(20) ? random.between(0, ranges.time / 2) : 0};
    if (i > 1 && random.chance(30)) {
      layer.inputs.push_back({static_cast<std::int32_t>(random.between(0, i - 2))});
    }
    if (i > 0) layer.inputs.push_back({static_cast<std::int32_t>(i - 1)});
    const std::int64_t batch_size = random.between(1, 4);
    layer.measurements.push_back(random_measurement(random, ranges, batch_size));
    if (random.chance(20)) {
      layer.measurements.push_back(
          random_measurement(random, ranges, batch_size + random.between(1, 3)));
    }
    profile.layers.push_back(std::move(layer));
  }
  return profile;
}

inline ServerLinks random_matrix(Random& random, const Ranges& ranges, std::int32_t devices) {
  ServerLinks links;
  links.kind = ServerLinks::Kind::Matrix;
  links.host_path = random_link(random, ranges);
  for (const std::int32_t lanes : {1, 2}) {
    LinkKind kind;
    kind.name = "lanes" + std::to_string(lanes);
    kind.link = random_link(random, ranges);
    kind.lanes = lanes;
    links.kinds.push_back(kind);
  }
  links.matrix = Eigen::MatrixXi::Constant(devices, devices, kNoLink);
  for (Eigen::Index from = 0; from < devices; ++from) {
    for (Eigen::Index to = 0; to < from; ++to) {
      const auto kind = static_cast<int>(random.between(-1, 1));
      links.matrix(from, to) = kind;
      links.matrix(to, from) = kind;
    }
  }
  return links;
}

inline TopologyDescription random_cluster(Random& random, const Ranges& ranges) {
  std::vector<ServerGroup> groups;
  const std::int64_t count = random.between(1, 2);
  for (std::int64_t g = 0; g < count; ++g) {
    ServerGroup group;
    group.name = std::string(1, static_cast<char>('a' + g));
    group.device = "gpu";
    group.count = static_cast<std::int32_t>(random.between(1, 2));
    group.devices = static_cast<std::int32_t>(random.between(1, 4));
    group.links.port = random_link(random, ranges);
    if (random.chance(50)) group.links = random_matrix(random, ranges, group.devices);
    const std::int64_t nics = random.between(1, 2);
    for (std::int64_t n = 0; n < nics; ++n) {
      group.nics.push_back({.source = "", .link = random_link(random, ranges), .devices = {}});
    }
    groups.push_back(std::move(group));
  }
  TopologyDescription description = description_of(std::move(groups));
  if (random.chance(50)) description.network = random_link(random, ranges);
  return description;
}

inline std::vector<std::int64_t> random_depths(Random& random, std::size_t stages,
                                               std::int64_t micro_batches) {
  std::vector<std::int64_t> depths;
  for (std::size_t s = 0; s < stages; ++s) depths.push_back(random.between(1, micro_batches));
  std::sort(depths.rbegin(), depths.rend());
  return depths;
}

/// Cuts the layers at random and gives each stage one to four devices, in any order.
inline std::vector<StageShape> random_stages(Random& random, std::int32_t layers,
                                             std::int32_t devices, const PlanShape& shape,
                                             bool deal) {
  const std::int64_t count =
      random.between(1, std::min<std::int64_t>({layers, devices, 5}));
  std::vector<std::int32_t> free;
  for (std::int32_t device = 0; device < devices; ++device) free.push_back(device);
  if (random.chance(70)) random.shuffle(free);
  std::vector<StageShape> stages;
  std::int32_t layers_left = layers;
  for (std::int64_t left = count; left > 0; --left) {
    StageShape stage;
    stage.layers = left == 1 ? layers_left
                             : static_cast<std::int32_t>(random.between(1, layers_left - left + 1));
    layers_left -= stage.layers;
    stage.dealt = deal && random.chance(50);
    stage.recompute = random.chance(25);
    const std::int64_t most = std::min<std::int64_t>(
        {4, static_cast<std::int64_t>(free.size()) - left + 1,
         stage.dealt ? shape.num_micro_batches : shape.micro_batch_size});
    for (std::int64_t r = random.between(1, most); r > 0; --r) {
      stage.devices.push_back(free.back());
      free.pop_back();
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

/// Depths may deadlock where stages deal; nothing then.
inline std::optional<Pipeline> try_random_pipeline(Random& random, const RandomChoices& choices) {
  const Ranges ranges = random_ranges(random);
  ModelProfile model = random_model(random, ranges);
  TopologyDescription description = random_cluster(random, ranges);
  if (choices.slowdown) {
    const std::int64_t factors[] = {1'000'000'000, 1'126'000'000, 1'500'000'000, 2'000'000'000};
    description.overlap_slowdown = Factor{factors[random.between(0, 3)]};
  }
  std::int32_t devices = 0;
  for (const ServerGroup& group : description.servers) devices += group.count * group.devices;
  PlanShape shape{.micro_batch_size = random.between(1, 6),
                  .num_micro_batches = random.between(1, choices.most_micro_batches),
                  .gpipe = random.chance(15),
                  .bucket_size = {random.between(1, 2 * ranges.bytes)}};
  shape.stages = random_stages(random, static_cast<std::int32_t>(model.layers.size()), devices,
                               shape, choices.deal);
  shape.depths = random_depths(random, shape.stages.size(), shape.num_micro_batches);
  if (choices.deal && random.chance(50)) random.shuffle(shape.depths);
  if (choices.deal) {
    const Plan plan = plan_of(model, shape);
    const auto layers = static_cast<std::int32_t>(model.layers.size());
    if (!validate(plan, layers, Topology(description)).empty()) return std::nullopt;
    if (!validate(generate(plan), plan).empty()) return std::nullopt;
  }
  return Pipeline(std::move(model), std::move(description), shape);
}

inline Pipeline random_pipeline(Random& random, const RandomChoices& choices = {}) {
  while (true) {
    std::optional<Pipeline> pipeline = try_random_pipeline(random, choices);
    if (pipeline) return std::move(*pipeline);
  }
}

/// The whole plan in a line or two, to repeat a failure by hand.
inline std::string text_of(const Pipeline& pipeline) {
  const Plan& plan = pipeline.plan;
  std::string text = "B " + std::to_string(plan.micro_batch_size) + " M " +
                     std::to_string(plan.num_micro_batches) + " " +
                     std::string(to_string(plan.family));
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
