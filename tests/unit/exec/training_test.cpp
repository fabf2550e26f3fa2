// Training by plans of every schedule against training on one device.

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "../../support/random_pipeline.h"
#include "../../support/trainable.h"
#include "dapple/exec/device_training.h"
#include "dapple/planner/reschedule.h"
#include "job.h"
#include "suspicious_backend.h"

namespace dapple {
namespace {

using namespace small;

/// What all devices together have done in some iterations.
struct Outcome {
  struct Iteration {
    double loss = 0;
    NamedTensors before;  // the model's tensors and the optimizer's
    NamedTensors gradients;
    Bytes sent;  // by the iteration itself
  };
  std::vector<Iteration> iterations;
  NamedTensors parameters;  // in the end
  std::map<std::pair<DeviceIndex, StageIndex>, CpuBackend::Held> held;
};

NamedTensors whole_model(DeviceTraining& device) {
  NamedTensors tensors = device.gather(TensorKind::Parameters);
  tensors.merge(device.gather(TensorKind::State));
  return tensors;
}

Outcome train(const TrainingJob& job, const Topology& topology, std::int64_t iterations) {
  std::vector<DeviceIndex> devices;
  for (const DeviceSchedule& schedule : job.devices) devices.push_back(schedule.device);
  ThreadNetwork network(topology, devices, {});
  Outcome outcome;
  std::mutex mutex;
  side_by_side(devices.size(), [&](std::size_t i) {
    const auto end = network.end_of(devices[i]);
    DeviceTraining device(job, devices[i], *end);
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
      iteration.gradients = device.gather(TensorKind::Gradients);
      if (device.is_lead()) outcome.iterations.push_back(std::move(iteration));
    }
    NamedTensors parameters = device.gather(TensorKind::Parameters);
    const std::lock_guard lock(mutex);
    if (device.is_lead()) outcome.parameters = std::move(parameters);
    for (const StageIndex stage : device.backend().stages()) {
      outcome.held[{devices[i], stage}] = device.backend().most_held(stage);
    }
  });
  return outcome;
}

double norm_of(const nn::Tensor& tensor) {
  double sum = 0;
  for (const float value : tensor.values) sum += double{value} * double{value};
  return std::sqrt(sum);
}

double difference_of(const nn::Tensor& a, const nn::Tensor& b) {
  nn::Tensor difference = a;
  for (std::size_t i = 0; i < a.values.size(); ++i) difference.values[i] -= b.values[i];
  return norm_of(difference);
}

/// Norm of the difference over the norm of all gradients of the layer: the gradient of a bias may
/// cancel out to nothing but rounding.
void require_close(const NamedTensors& tensors, const NamedTensors& expected) {
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
    REQUIRE(difference_of(other, tensor) <= 1e-5 * layer_norms[layer_of(name)] + 1e-9);
  }
}

void require_same(const NamedTensors& tensors, const NamedTensors& expected) {
  REQUIRE(tensors.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    INFO(name);
    REQUIRE(tensors.at(name).shape == tensor.shape);
    REQUIRE(tensors.at(name).values == tensor.values);
  }
}

/// Whether gradients are added up in the order in which one device would: micro-batch by
/// micro-batch, on one replica, all that a layer and one that it is tied to make on one stage.
bool adds_in_order(const Pipeline& pipeline) {
  if (!pipeline.plan.tied_gradients.empty()) return false;
  for (const StagePlan& stage : pipeline.plan.stages) {
    if (stage.devices.size() > 1) return false;
  }
  for (const Lane& lane : pipeline.schedule.lanes) {
    std::map<StageIndex, std::int32_t> next;
    for (const Action& action : lane.actions) {
      if (!makes_weight_gradient(action.kind)) continue;
      if (action.index != next[action.stage]++) return false;
    }
  }
  return true;
}

Bytes bytes_of_an_iteration(const Pipeline& pipeline) {
  Bytes size;
  for (const BoundaryCost& boundary : pipeline.costs.boundaries) {
    for (std::int64_t m = 0; m < pipeline.plan.num_micro_batches; ++m) {
      const auto index = static_cast<std::size_t>(m);
      size += boundary.forward[index % boundary.forward.size()].size;
      size += boundary.backward[index % boundary.backward.size()].size;
    }
  }
  for (const StageCost& stage : pipeline.costs.stages) {
    const auto replicas = static_cast<std::int64_t>(stage.replicas.size());
    // Every float passes r - 1 hops to be summed up, and as many to be spread.
    for (const AllReduceCost& bucket : stage.buckets) size += 2 * (replicas - 1) * bucket.size;
  }
  for (std::size_t tie = 0; tie < pipeline.costs.ties.size(); ++tie) {
    const auto members = static_cast<std::int64_t>(
        members_of(pipeline.plan, ActionKind::ReduceTied, {}, static_cast<std::int32_t>(tie))
            .size());
    size += 2 * (members - 1) * pipeline.costs.ties[tie].reduction.size;
  }
  return size;
}

/// Most that a device holds of a stage by its list of actions: for each micro-batch between its
/// forward and the end of its backward, and more from where that runs the forward again.
CpuBackend::Held most_held_by(const DeviceSchedule& schedule, StageIndex stage,
                              const MemoryCost& memory) {
  std::int64_t in_flight = 0;
  std::int64_t run_again = 0;
  CpuBackend::Held most;
  for (const DeviceAction& entry : schedule.actions) {
    if (entry.action.stage != stage) continue;
    if (entry.action.kind == ActionKind::Forward) ++in_flight;
    if (makes_input_gradient(entry.action.kind)) ++run_again;
    most.micro_batches = std::max(most.micro_batches, in_flight);
    most.size = std::max(most.size,
                         in_flight * memory.per_micro_batch + run_again * memory.recompute_stash);
    if (!makes_weight_gradient(entry.action.kind)) continue;
    --in_flight;
    --run_again;
  }
  return most;
}

/// As many micro-batches as the schedule says and, of each, no more than the cost model says.
void check_held(const Pipeline& pipeline, const TrainingJob& job, const Outcome& outcome) {
  for (const DeviceSchedule& schedule : job.devices) {
    for (const StageIndex stage : schedule.stages) {
      const CpuBackend::Held& held = outcome.held.at({schedule.device, stage});
      const std::vector<ReplicaCost>& replicas = pipeline.costs.stages[stage.position()].replicas;
      const auto here = std::find_if(
          replicas.begin(), replicas.end(),
          [&](const ReplicaCost& replica) { return replica.device == schedule.device; });
      const CpuBackend::Held expected = most_held_by(schedule, stage, here->memory);
      REQUIRE(held.micro_batches == expected.micro_batches);
      // The weights' part of a split backward keeps gradients of outputs that no profile counts.
      if (may_split_backward(pipeline.plan.family)) continue;
      REQUIRE(held.size.count <= expected.size.count);
      // What runs its forward again holds its input once.
      if (pipeline.plan.stages[stage.position()].recompute) continue;
      REQUIRE(held.size.count == expected.size.count);
    }
  }
}

TrainingJob job_of(const Trainable& model, const Pipeline& pipeline,
                   const TrainingSettings& settings) {
  REQUIRE(training_faults(pipeline.plan, model.profile, *model.layers, settings).empty());
  return make_training_job(pipeline.plan, model.profile, pipeline.topology, model.layers,
                           model.batches, settings);
}

/// Every iteration from the parameters that the plan's devices began it with.
void check_training(const Trainable& model, const Pipeline& pipeline,
                    const TrainingSettings& settings) {
  const TrainingJob job = job_of(model, pipeline, settings);
  const Outcome outcome = train(job, pipeline.topology, 2);
  PlainTraining plain(job);
  const bool is_exact = adds_in_order(pipeline);
  for (std::size_t n = 0; n < outcome.iterations.size(); ++n) {
    const Outcome::Iteration& iteration = outcome.iterations[n];
    plain.restore(iteration.before);
    const double loss = plain.run(static_cast<std::int64_t>(n));
    const NamedTensors gradients = plain.tensors(TensorKind::Gradients);
    if (is_exact) {
      REQUIRE(iteration.loss == loss);
      require_same(iteration.gradients, gradients);
    } else {
      REQUIRE(iteration.loss == Approx(loss).epsilon(1e-5));
      require_close(iteration.gradients, gradients);
    }
    if (!settings.clip_norm) REQUIRE(iteration.sent == bytes_of_an_iteration(pipeline));
  }
  if (is_exact) require_same(outcome.parameters, plain.tensors(TensorKind::Parameters));
  check_held(pipeline, job, outcome);
}

TrainingSettings random_settings(Dice& dice, const Plan& plan) {
  constexpr nn::OptimizerKind kKinds[] = {nn::OptimizerKind::Sgd, nn::OptimizerKind::Momentum,
                                          nn::OptimizerKind::Adam, nn::OptimizerKind::AdamW};
  TrainingSettings settings{.optimizer = {.kind = kKinds[dice.roll(0, 3)], .learning_rate = 0.05F},
                            .seed = static_cast<std::uint64_t>(dice.roll(1, 1'000))};
  const bool may_clip = plan.gradients.optimizer == OptimizerTiming::AtEnd;
  if (may_clip && dice.chance(30)) settings.clip_norm = 0.1;
  return settings;
}

/// 1F1B or GPipe, with any replicas.
std::optional<Pipeline> random_plan(Dice& dice, const Trainable& model, std::int64_t replicas,
                                    bool deal) {
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

TEST_CASE("with one replica per stage, gradients are bit by bit those of one device") {
  Dice dice(3301);
  for (int round = 0; round < scaled(80); ++round) {
    const Trainable model = random_trainable(dice);
    const std::optional<Pipeline> pipeline = random_plan(dice, model, 1, false);
    REQUIRE(pipeline.has_value());
    INFO("instance " << round << ": " << text_of(*pipeline));
    REQUIRE(adds_in_order(*pipeline) == pipeline->plan.tied_gradients.empty());
    check_training(model, *pipeline, random_settings(dice, pipeline->plan));
  }
}

TEST_CASE("with replicas, gradients are those of one device, however samples are shared out") {
  Dice dice(3302);
  int dealt = 0;
  for (int round = 0; round < scaled(120); ++round) {
    const Trainable model = random_trainable(dice);
    const std::optional<Pipeline> pipeline = random_plan(dice, model, 3, true);
    if (!pipeline) continue;
    INFO("instance " << round << ": " << text_of(*pipeline));
    for (const StagePlan& stage : pipeline->plan.stages) {
      if (stage.replication == Replication::Deal && stage.devices.size() > 1) ++dealt;
    }
    check_training(model, *pipeline, random_settings(dice, pipeline->plan));
  }
  CHECK(dealt >= scaled(10));
}

/// The plan's devices under another family; nothing where the family does not take them.
std::optional<Pipeline> under(const Pipeline& pipeline, const Reschedule& options) {
  auto made = reschedule(pipeline.plan, pipeline.profile, pipeline.topology, options);
  if (std::holds_alternative<NoSchedule>(made)) return std::nullopt;
  Plan plan = std::get<Rescheduled>(std::move(made)).plan;
  fill_gradient_buckets(plan, pipeline.profile);
  return Pipeline(pipeline.profile, pipeline.topology.description(), plan);
}

TEST_CASE("whatever the schedule, gradients are those of one device") {
  Dice dice(3303);
  std::map<ScheduleFamily, int> seen;
  for (int round = 0; round < scaled(30); ++round) {
    const Trainable model = random_transformer(dice);
    std::optional<Pipeline> start = random_plan(dice, model, dice.roll(1, 2), false);
    if (!start) continue;
    for (const ScheduleFamily family : kScheduleFamilies) {
      Reschedule options{.family = family, .evaluations = 200};
      const bool is_looped =
          family == ScheduleFamily::Interleaved || family == ScheduleFamily::BreadthFirst;
      if (is_looped || family == ScheduleFamily::ZeroBubbleV) options.chunks_per_device = 2;
      if (family == ScheduleFamily::Given) {
        const auto ordered = under(*start, {.family = ScheduleFamily::ZeroBubbleH2});
        if (!ordered) continue;
        options.order = ordered->plan.order;
      }
      const std::optional<Pipeline> pipeline = under(*start, options);
      if (!pipeline) continue;
      INFO("instance " << round << ": " << text_of(*pipeline));
      ++seen[family];
      check_training(model, *pipeline, random_settings(dice, pipeline->plan));
    }
  }
  // Few rounds, as under sanitizers, may not find plans for all of them.
  for (const ScheduleFamily family : kScheduleFamilies) {
    INFO(to_string(family));
    if (scaled(30) >= 30) CHECK(seen[family] >= scaled(5));
  }
}

TEST_CASE("ten steps of a pipeline have the losses of ten steps on one device, bit by bit") {
  Dice dice(3304);
  const Trainable model = random_transformer(dice);
  const auto stages = static_cast<std::int32_t>(std::min<std::size_t>(4, model.layers->size()));
  PlanShape shape{.micro_batch_size = 2, .num_micro_batches = 4};
  for (std::int32_t s = 0; s < stages; ++s) {
    const auto rest = static_cast<std::int32_t>(model.layers->size()) - stages + 1;
    shape.stages.push_back({.layers = s + 1 == stages ? rest : 1, .devices = {s}});
    shape.depths.push_back(stages - s);
  }
  const Pipeline pipeline(model.profile,
                          full_mesh(static_cast<std::size_t>(stages), {bytes_per_ns(1), {}}),
                          plan_of(model.profile, shape));
  const TrainingSettings settings{.optimizer = {.learning_rate = 0.01F}, .clip_norm = 0.5};
  const TrainingJob job = job_of(model, pipeline, settings);
  const Outcome outcome = train(job, pipeline.topology, 10);
  PlainTraining plain(job);
  for (std::size_t n = 0; n < 10; ++n) {
    CHECK(outcome.iterations[n].loss == plain.run(static_cast<std::int64_t>(n)));
  }
  require_same(outcome.parameters, plain.tensors(TensorKind::Parameters));
}

}  // namespace
}  // namespace dapple
