// Training by plans of every schedule against training on one device.

#include <catch2/catch.hpp>
#include <map>
#include <optional>

#include "../support/suspicious_backend.h"
#include "../support/trained_pipeline.h"

namespace dapple {
namespace {

using namespace small;

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
exec::Held most_held_by(const DeviceSchedule& schedule, StageIndex stage,
                        const MemoryCost& memory) {
  std::int64_t in_flight = 0;
  std::int64_t run_again = 0;
  exec::Held most;
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
void check_held(const Pipeline& pipeline, const exec::TrainingJob& job, const Outcome& outcome) {
  for (const DeviceSchedule& schedule : job.devices) {
    for (const StageIndex stage : schedule.stages) {
      const exec::Held& held = outcome.held.at({schedule.device, stage});
      const std::vector<ReplicaCost>& replicas = pipeline.costs.stages[stage.position()].replicas;
      const auto here = std::find_if(
          replicas.begin(), replicas.end(),
          [&](const ReplicaCost& replica) { return replica.device == schedule.device; });
      const exec::Held expected = most_held_by(schedule, stage, here->memory);
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

/// Every iteration from the parameters that the plan's devices began it with.
void check_training(const Trainable& model, const Pipeline& pipeline,
                    const exec::TrainingSettings& settings) {
  const exec::TrainingJob job = job_of(model, pipeline, settings);
  const Outcome outcome = train(job, pipeline.topology, 2);
  exec::PlainTraining plain(job);
  const bool is_exact = adds_in_order(pipeline);
  for (std::size_t n = 0; n < outcome.iterations.size(); ++n) {
    const Outcome::Iteration& iteration = outcome.iterations[n];
    plain.restore(iteration.before);
    const double loss = plain.run(static_cast<std::int64_t>(n));
    const exec::NamedTensors gradients = plain.tensors(exec::TensorKind::Gradients);
    if (is_exact) {
      REQUIRE(iteration.loss == loss);
      require_same(iteration.gradients, gradients);
    } else {
      REQUIRE(iteration.loss == Approx(loss).epsilon(1e-5));
      // Single precision, added up in another order.
      require_close(iteration.gradients, gradients, 3e-5);
    }
    if (!settings.clip_norm) REQUIRE(iteration.sent == bytes_of_an_iteration(pipeline));
  }
  if (is_exact) require_same(outcome.parameters, plain.tensors(exec::TensorKind::Parameters));
  check_held(pipeline, job, outcome);
}

/// Counts how often samples are asked for.
class CountedBatches : public exec::Batches {
 public:
  explicit CountedBatches(std::shared_ptr<const exec::Batches> own) : own_(std::move(own)) {}
  nn::Tensor inputs(std::int64_t iteration, std::int64_t begin, std::int64_t end) const override {
    ++asked;
    return own_->inputs(iteration, begin, end);
  }
  nn::Tensor targets(std::int64_t iteration, std::int64_t begin, std::int64_t end) const override {
    ++asked;
    return own_->targets(iteration, begin, end);
  }

  mutable int asked = 0;

 private:
  std::shared_ptr<const exec::Batches> own_;
};

TEST_CASE("samples are made before an iteration, not within its forwards") {
  Dice dice(3305);
  for (int round = 0; round < 10; ++round) {
    const Trainable model = random_trainable(dice);
    const std::optional<Pipeline> pipeline = random_plan(dice, model, 1, false);
    REQUIRE(pipeline.has_value());
    INFO("instance " << round << ": " << text_of(*pipeline));
    exec::TrainingJob job = exec::on_one_device(job_of(model, *pipeline, {}));
    const auto counted = std::make_shared<CountedBatches>(job.batches);
    job.batches = counted;
    const auto backend = exec::make_cpu_backend(job, job.devices.front().device);
    for (std::int64_t iteration = 0; iteration < 2; ++iteration) {
      counted->asked = 0;
      backend->begin(iteration);
      // Inputs and targets of each micro-batch.
      CHECK(counted->asked == 2 * job.plan.num_micro_batches);
      for (const DeviceAction& entry : job.devices.front().actions) {
        if (entry.action.kind != ActionKind::OptimizerStep) backend->compute(entry.action, nullptr);
      }
      CHECK(counted->asked == 2 * job.plan.num_micro_batches);
    }
  }
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

TEST_CASE("whatever the schedule, gradients are those of one device") {
  Dice dice(3303);
  std::map<ScheduleFamily, int> seen;
  for (int round = 0; round < scaled(30); ++round) {
    const Trainable model = random_transformer(dice);
    std::optional<Pipeline> start = random_plan(dice, model, dice.roll(1, 2), false);
    if (!start) continue;
    for (const ScheduleFamily family : kScheduleFamilies) {
      const std::optional<Pipeline> pipeline = under_family(*start, family, 200);
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
  const exec::TrainingSettings settings{.optimizer = {.learning_rate = 0.01F}, .clip_norm = 0.5};
  const exec::TrainingJob job = job_of(model, pipeline, settings);
  const Outcome outcome = train(job, pipeline.topology, 10);
  exec::PlainTraining plain(job);
  for (std::size_t n = 0; n < 10; ++n) {
    CHECK(outcome.iterations[n].loss == plain.run(static_cast<std::int64_t>(n)));
  }
  require_same(outcome.parameters, plain.tensors(exec::TensorKind::Parameters));
}

}  // namespace
}  // namespace dapple
