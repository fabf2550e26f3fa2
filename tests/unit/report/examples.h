// Plans and timelines made by hand, so that reports are tested without the modules that compute.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dapple/plan/document.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/prediction.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/description.h"
#include "dapple/topology/topology.h"

namespace dapple::examples {

/// `servers` servers with `devices` devices of 16 GiB each, named node0:0 and so on.
inline Topology cluster(std::int32_t servers, std::int32_t devices) {
  TopologyDescription description;
  description.name = "cluster";
  description.devices.push_back({.name = "card",
                                 .source = "made up",
                                 .memory = {std::int64_t{16} << 30},
                                 .reserved = {0},
                                 .time_scale = {},
                                 .price_per_hour = {}});
  ServerGroup group;
  group.name = "node";
  group.count = servers;
  group.device = "card";
  group.devices = devices;
  group.links.port = {.bandwidth = {100'000'000'000}, .latency = {1000}};
  group.nics.push_back({.source = "made up",
                        .link = {.bandwidth = {3'125'000'000}, .latency = {5000}},
                        .devices = {}});
  description.servers.push_back(group);
  description.network = Link{.bandwidth = {3'125'000'000}, .latency = {0}};
  return Topology{description};
}

struct PipelineShape {
  std::int32_t stages = 2;
  std::int32_t micro_batches = 4;
  Duration forward{1'000'000};
  Duration backward{2'000'000};
  Duration all_reduce{0};
  Duration step{0};
};

/// When each action of 1F1B with depths S, S-1, ..., 1 happens where transfers take no time; device
/// s is that of stage s. Executed in rounds: an action starts when its stage is free and its input
/// there.
inline Timeline pipeline_timeline(const PipelineShape& shape) {
  std::vector<std::vector<Action>> orders;
  for (std::int32_t s = 0; s < shape.stages; ++s) {
    const std::int32_t depth = std::min(shape.stages - s, shape.micro_batches);
    std::vector<Action> order;
    for (std::int32_t m = 0; m < depth; ++m)
      order.push_back({ActionKind::Forward, m, StageIndex{s}});
    for (std::int32_t m = 0; m < shape.micro_batches; ++m) {
      order.push_back({ActionKind::Backward, m, StageIndex{s}});
      if (m + depth >= shape.micro_batches) continue;
      order.push_back({ActionKind::Forward, m + depth, StageIndex{s}});
    }
    orders.push_back(order);
  }
  Timeline timeline;
  std::vector<std::size_t> next(orders.size(), 0);
  std::vector<Duration> free(orders.size());
  std::map<std::pair<std::int32_t, std::int32_t>, Duration> forward_end;
  std::map<std::pair<std::int32_t, std::int32_t>, Duration> backward_end;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::int32_t s = 0; s < shape.stages; ++s) {
      const auto row = static_cast<std::size_t>(s);
      if (next[row] == orders[row].size()) continue;
      const Action action = orders[row][next[row]];
      const bool forward = action.kind == ActionKind::Forward;
      const bool waits = forward ? s > 0 : s + 1 < shape.stages;
      const auto& ends = forward ? forward_end : backward_end;
      const auto input = ends.find({forward ? s - 1 : s + 1, action.index});
      if (waits && input == ends.end()) continue;
      const Duration start = std::max(free[row], waits ? input->second : Duration{0});
      const Duration end = start + (forward ? shape.forward : shape.backward);
      timeline.actions.push_back({LaneIndex{s}, action, start, end, {}});
      (forward ? forward_end : backward_end)[{s, action.index}] = end;
      free[row] = end;
      ++next[row];
      moved = true;
    }
  }
  for (std::int32_t s = 0; s < shape.stages; ++s) {
    timeline.lanes.push_back({{StageIndex{s}}, {DeviceIndex{s}}});
    Duration at = free[static_cast<std::size_t>(s)];
    if (shape.all_reduce.ns > 0) {
      timeline.actions.push_back({LaneIndex{s},
                                  {ActionKind::AllReduce, 0, StageIndex{s}},
                                  at,
                                  at + shape.all_reduce,
                                  {1024}});
      at += shape.all_reduce;
    }
    timeline.actions.push_back(
        {LaneIndex{s}, {ActionKind::OptimizerStep, 0, StageIndex{s}}, at, at + shape.step, {}});
  }
  return timeline;
}

/// A profile of `layers` layers named "embeddings", "encoder.0", "encoder.1", ...
inline ModelProfile profile(std::int32_t layers) {
  ModelProfile result;
  result.name = "toy";
  result.device = "card";
  for (std::int32_t i = 0; i < layers; ++i) {
    Layer layer;
    layer.name = i == 0 ? "embeddings" : "encoder." + std::to_string(i - 1);
    layer.measurements.push_back({});
    if (i > 0) layer.inputs.push_back({i - 1});
    result.layers.push_back(layer);
  }
  return result;
}

/// A plan with one stage per device of `topology`, or per group of `replicas` devices, four layers
/// each, with figures made up from the stage's number.
inline PlanDocument document(const Topology& topology, std::int32_t stages, std::int32_t replicas) {
  PlanDocument result;
  result.tool = "dapple-plan 0.0.0";
  result.profile = profile(4 * stages);
  result.topology = topology.description();
  result.plan.global_batch_size = 64;
  result.plan.micro_batch_size = 8;
  result.plan.num_micro_batches = 8;
  for (std::int32_t s = 0; s < stages; ++s) {
    StagePlan stage;
    stage.layers = {4 * s, 4 * s + 4};
    for (std::int32_t r = 0; r < replicas; ++r) {
      const DeviceIndex device{s * replicas + r};
      stage.devices.push_back(device);
      result.prediction.devices.push_back({.device = device,
                                           .peak_memory = {(std::int64_t{4 + s % 8} << 30)},
                                           .memory_limit = {std::int64_t{15} << 30},
                                           .busy_fraction = 0.9});
    }
    result.plan.stages.push_back(stage);
    result.plan.warmup_depths.push_back(stages - s);
    result.prediction.stages.push_back({.forward = {15'250'000 + 1'000'000 * s},
                                        .backward = {25'375'000},
                                        .send = {4'325'376},
                                        .all_reduce = {replicas > 1 ? 40'000'000 : 0},
                                        .optimizer_step = {1'000'000}});
  }
  result.prediction.iteration = {512'345'678};
  result.prediction.samples_per_second = 124.9157;
  result.prediction.speedup_over_one_device = 13.4;
  result.prediction.bubble_fraction = 0.1234;
  result.prediction.exposed_transfer = {1'200'000};
  result.prediction.exposed_all_reduce = {38'000'000};
  result.prediction.parts = {.compute = {400'000'000},
                             .recomputation = {0},
                             .imbalance = {10'000'000},
                             .bubble = {62'145'678},
                             .transfers = {1'200'000},
                             .all_reduce = {38'000'000},
                             .optimizer_step = {1'000'000}};
  result.search = {.planner = "dapple",
                   .complete = false,
                   .searched = {"stage boundaries", "replicas per stage",
                                "micro-batch sizes that divide the global batch"},
                   .cut = {"placements other than fresh, append and scatter first"},
                   .states = 12'345,
                   .candidates = 678,
                   .simulated = 90};
  return result;
}

}  // namespace dapple::examples
