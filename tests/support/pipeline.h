// Small models on small clusters, for tests that work their numbers by hand. A link of
// bytes_per_ns(1) moves n bytes in n ns.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/cost/costs.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/schedule/schedule.h"
#include "dapple/simulate/simulate.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple::small {

constexpr Bandwidth bytes_per_ns(std::int64_t count) {
  return {count * kNanosecondsPerSecond};
}

/// One layer, per sample: nanoseconds and bytes.
struct LayerFigures {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t output = 0;
  std::int64_t parameters = 0;
  std::int64_t stash = 0;
  std::int64_t workspace = 0;
};

/// A chain of such layers, all proportional to samples, a byte of gradient per byte of parameters.
inline ModelProfile model_of(const std::vector<LayerFigures>& layers) {
  ModelProfile profile;
  profile.name = "small";
  profile.device = "gpu";
  profile.batch_scaling = BatchScaling::Proportional;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerFigures& figures = layers[i];
    Layer layer;
    layer.name = "layer" + std::to_string(i);
    layer.parameters = {figures.parameters};
    if (i > 0) layer.inputs = {index_at<LayerIndex>(i - 1)};
    Measurement measurement;
    measurement.forward = {figures.forward};
    measurement.backward = {figures.backward};
    measurement.output = {figures.output};
    measurement.stash = {figures.stash};
    measurement.workspace = {figures.workspace};
    layer.measurements = {measurement};
    profile.layers.push_back(std::move(layer));
  }
  return profile;
}

inline TopologyDescription description_of(std::vector<ServerGroup> groups) {
  TopologyDescription description;
  description.name = "small";
  DeviceKind kind;
  kind.name = "gpu";
  kind.memory = {kMaxCount};
  description.devices = {kind};
  description.servers = std::move(groups);
  description.network = Link{{kMaxCount}, {}};
  return description;
}

/// Servers alike, switched inside.
struct ClusterFigures {
  std::int32_t servers = 1;
  std::int32_t devices = 1;  // per server
  Link inside{bytes_per_ns(1), {}};
  std::vector<Link> nics{Link{bytes_per_ns(1), {}}};
};

inline TopologyDescription cluster(const ClusterFigures& figures) {
  ServerGroup group;
  group.name = "node";
  group.device = "gpu";
  group.count = figures.servers;
  group.devices = figures.devices;
  group.links.port = figures.inside;
  for (const Link& link : figures.nics) {
    group.nics.push_back({.source = "", .link = link, .devices = {}});
  }
  return description_of({group});
}

/// One server whose devices have a direct link where `direct` has a 1, and else the host path.
inline TopologyDescription mesh(const std::vector<std::vector<int>>& direct, const Link& link,
                                const Link& host_path) {
  ServerGroup group;
  group.name = "node";
  group.device = "gpu";
  group.devices = static_cast<std::int32_t>(direct.size());
  group.links.kind = ServerLinks::Kind::Matrix;
  group.links.host_path = host_path;
  LinkKind kind;
  kind.name = "direct";
  kind.link = link;
  group.links.kinds = {kind};
  const auto size = static_cast<Eigen::Index>(direct.size());
  group.links.matrix = Eigen::MatrixXi::Constant(size, size, kNoLink);
  for (Eigen::Index from = 0; from < size; ++from) {
    for (Eigen::Index to = 0; to < size; ++to) {
      const auto row = static_cast<std::size_t>(from);
      if (direct[row][static_cast<std::size_t>(to)] == 1) group.links.matrix(from, to) = 0;
    }
  }
  return description_of({group});
}

/// One server in which each ordered pair of devices has a link of its own, so nothing is shared.
inline TopologyDescription full_mesh(std::size_t devices, const Link& link) {
  std::vector<std::vector<int>> direct(devices, std::vector<int>(devices, 1));
  for (std::size_t i = 0; i < devices; ++i) direct[i][i] = 0;
  return mesh(direct, link, {bytes_per_ns(1), {}});
}

struct StageShape {
  std::int32_t layers = 1;
  std::vector<std::int32_t> devices = {};
  bool dealt = false;
  bool recompute = false;
};

struct PlanShape {
  std::int64_t micro_batch_size = 1;
  std::int64_t num_micro_batches = 1;
  std::vector<std::int64_t> depths = {};
  std::vector<StageShape> stages = {};
  bool gpipe = false;
  Bytes bucket_size = kDefaultBucketSize;
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
};

inline Plan plan_of(const ModelProfile& profile, const PlanShape& shape) {
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
    plan.stages.push_back(std::move(stage));
  }
  fill_gradient_buckets(plan, profile);
  return plan;
}

/// Everything that a simulation needs, made from the same plan. Throws Bug if the plan is unsound.
struct Pipeline {
  ModelProfile profile;
  Topology topology;
  Plan plan;
  PlanCost costs;
  Schedule schedule;

  Pipeline(ModelProfile model, TopologyDescription description, Plan made)
      : profile(std::move(model)), topology(std::move(description)), plan(std::move(made)) {
    const auto layers = static_cast<std::int32_t>(profile.layers.size());
    const std::vector<Violation> faults = validate(plan, layers, topology);
    if (!faults.empty()) throw Bug(faults.front().place + ": " + faults.front().message);
    costs = CostModel(profile, topology).plan_cost(plan);
    schedule = generate(plan);
    const std::vector<Violation> disorder = validate(schedule, plan);
    if (!disorder.empty()) throw Bug(disorder.front().place + ": " + disorder.front().message);
  }

  Pipeline(const ModelProfile& model, TopologyDescription description, const PlanShape& shape)
      : Pipeline(model, std::move(description), plan_of(model, shape)) {}

  SimulationResult run(const SimulationOptions& options = {}) const {
    return simulate(schedule, costs, topology, options);
  }
  SimulationResult run(Contention contention) const {
    return run(SimulationOptions{.contention = contention});
  }
  /// With replicas on their own.
  SimulationResult run_apart(const SimulationOptions& options = {}) const {
    return simulate(generate(plan, Replicas::Independent), costs, topology, options);
  }
};

/// One layer per stage and one device per stage, in order, on the full mesh of `link`.
inline Pipeline straight(const std::vector<LayerFigures>& stages, PlanShape shape,
                         const Link& link = {bytes_per_ns(1), {}}) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    shape.stages.push_back({.layers = 1, .devices = {static_cast<std::int32_t>(s)}});
  }
  return {model_of(stages), full_mesh(stages.size(), link), shape};
}

/// What a lane does on a stream, by start: "F0[0,10] B0[10,30] S[30,30]". F and B compute, S is the
/// optimizer step, A and G send activations and gradients, R reduces a bucket, T what is tied.
inline std::string line(const SimulationResult& result, std::int32_t lane, Stream stream) {
  std::string text;
  for (const TimedAction& timed : result.timeline.actions) {
    if (timed.lane.value != lane || stream_of(timed.action.kind) != stream) continue;
    if (!text.empty()) text += ' ';
    switch (timed.action.kind) {
      case ActionKind::Forward:
        text += 'F';
        break;
      case ActionKind::Backward:
        text += 'B';
        break;
      case ActionKind::SendActivation:
        text += 'A';
        break;
      case ActionKind::SendGradient:
        text += 'G';
        break;
      case ActionKind::AllReduce:
        text += 'R';
        break;
      case ActionKind::ReduceTied:
        text += 'T';
        break;
      default:
        text += 'S';
        break;
    }
    const bool is_step = timed.action.kind == ActionKind::OptimizerStep;
    if (!is_step || timed.action.index > 0) text += std::to_string(timed.action.index);
    text += '[' + std::to_string(timed.start.ns) + ',' + std::to_string(timed.end.ns) + ']';
  }
  return text;
}

inline std::string compute(const SimulationResult& result, std::int32_t lane) {
  return line(result, lane, Stream::Compute);
}
inline std::string activations(const SimulationResult& result, std::int32_t lane) {
  return line(result, lane, Stream::SendForward);
}
inline std::string gradients(const SimulationResult& result, std::int32_t lane) {
  return line(result, lane, Stream::SendBackward);
}
inline std::string reductions(const SimulationResult& result, std::int32_t lane) {
  return line(result, lane, Stream::Collective);
}

}  // namespace dapple::small
