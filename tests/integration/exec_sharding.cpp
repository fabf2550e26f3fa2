// Training with the optimizer's state sharded over replicas, against the same plan without.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "../support/trained_pipeline.h"
#include "dapple/exec/train/train.h"
#include "dapple/exec/weights/checkpoint.h"

namespace dapple {
namespace {

using namespace small;

/// The jobs of a plan whose replicas shard the optimizer's state, and of the same plan without,
/// which reduces in the same groups, so that all sums are added up in the same order. Groups of
/// four are on two servers.
struct BothJobs {
  BothJobs(const Trainable& model, const Pipeline& pipeline, const exec::TrainingSettings& settings)
      : sharded(job_of(model, pipeline, settings)) {
    for (std::vector<exec::ReductionGroup>& stage : sharded.groups.buckets) {
      for (exec::ReductionGroup& bucket : stage) {
        const std::vector<DeviceIndex> all = exec::members_of(bucket);
        if (all.size() == 4) bucket.servers = {{all[0], all[1]}, {all[2], all[3]}};
      }
    }
    whole = with_whole_state(sharded);
  }

  exec::TrainingJob sharded;
  exec::TrainingJob whole;
};

/// Bytes that all devices of an iteration send in addition to activations and gradients of them.
Bytes reduced_bytes(const exec::TrainingJob& job, const PlanCost& costs, bool is_sharded) {
  Bytes size;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const auto replicas = static_cast<std::int64_t>(costs.stages[s].replicas.size());
    // Once around the ring to be summed up, and once for the gradients or the parameters.
    for (const AllReduceCost& bucket : costs.stages[s].buckets) {
      size += 2 * (replicas - 1) * bucket.size;
    }
    if (!is_sharded) continue;
    for (const std::int32_t tie : ties_of(job.plan, {index_at<StageIndex>(s)})) {
      size += (replicas - 1) * costs.ties[static_cast<std::size_t>(tie)].reduction.size;
    }
  }
  return size;
}

struct Seen {
  std::map<std::size_t, int> stages;  // by their number of replicas
  int several_buckets = 0;
  int uneven = 0;
  int ties = 0;
  int servers = 0;
  std::map<nn::OptimizerKind, int> optimizers;

  void add(const exec::TrainingJob& job) {
    ++optimizers[job.settings.optimizer.kind];
    for (std::size_t s = 0; s < job.plan.stages.size(); ++s) {
      const std::size_t replicas = job.plan.stages[s].devices.size();
      ++stages[replicas];
      if (replicas == 1) continue;
      const std::vector<Bytes>& buckets = job.buckets[s].sizes;
      if (buckets.size() > 1) ++several_buckets;
      if (!ties_of(job.plan, {index_at<StageIndex>(s)}).empty()) ++ties;
      const auto floats = static_cast<std::int64_t>(sizeof(float) * replicas);
      uneven += std::any_of(buckets.begin(), buckets.end(),
                            [&](Bytes size) { return size.count % floats != 0; });
      const std::vector<exec::ReductionGroup>& groups = job.groups.buckets[s];
      servers += std::any_of(groups.begin(), groups.end(),
                             [](const auto& group) { return group.servers.size() > 1; });
    }
  }
};

/// Each replica has the state of its shard alone, and all of them together the whole state.
void check_state(const exec::TrainingJob& job, const PlanCost& costs) {
  const std::int64_t states = nn::state_count(job.settings.optimizer.kind);
  for (std::size_t s = 0; s < job.plan.stages.size(); ++s) {
    const std::vector<DeviceIndex>& replicas = job.plan.stages[s].devices;
    const auto r = static_cast<std::int64_t>(replicas.size());
    const std::int64_t parameters = costs.stages[s].replicas.front().memory.weights.count / 4;
    // Shards of a bucket, or of a tie, differ by one number in a ring, and by two across servers.
    const auto ranges = static_cast<std::int64_t>(
        job.buckets[s].sizes.size() + ties_of(job.plan, {index_at<StageIndex>(s)}).size());
    std::int64_t together = 0;
    for (const DeviceIndex device : replicas) {
      const auto backend = exec::make_cpu_backend(job, device);
      const auto held = static_cast<std::int64_t>(
          backend->values(index_at<StageIndex>(s), exec::TensorKind::State).size());
      together += held;
      if (r > 1) CHECK(held <= states * (parameters / r + 2 * ranges));
    }
    if (r > 1) CHECK(together == states * parameters);
  }
}

void check_both(const Trainable& model, const Pipeline& pipeline,
                const exec::TrainingSettings& settings, Seen& seen) {
  const BothJobs jobs(model, pipeline, settings);
  seen.add(jobs.sharded);
  check_state(jobs.sharded, pipeline.costs);
  constexpr std::int64_t kSteps = 4;
  const Outcome sharded = train(jobs.sharded, pipeline.topology, kSteps);
  const Outcome whole = train(jobs.whole, pipeline.topology, kSteps);
  REQUIRE(sharded.iterations.size() == kSteps);
  for (std::size_t n = 0; n < sharded.iterations.size(); ++n) {
    const Outcome::Iteration& ours = sharded.iterations[n];
    const Outcome::Iteration& theirs = whole.iterations[n];
    if (!settings.clip_norm) {
      // The halves of an all-reduce make the same sums, and an optimizer goes number by number.
      REQUIRE(ours.loss == theirs.loss);
      require_same(ours.before, theirs.before);
      require_same(ours.gradients, theirs.gradients);
      REQUIRE(ours.sent - theirs.sent == reduced_bytes(jobs.sharded, pipeline.costs, true) -
                                             reduced_bytes(jobs.whole, pipeline.costs, false));
      continue;
    }
    // The norm's squares are added up in another order.
    REQUIRE(ours.loss == Approx(theirs.loss).epsilon(1e-5));
    require_close(ours.before, theirs.before);
    require_close(ours.gradients, theirs.gradients);
  }
  if (settings.clip_norm) {
    require_close(sharded.parameters, whole.parameters);
  } else {
    require_same(sharded.parameters, whole.parameters);
  }
}

TEST_CASE("sharded over replicas, the optimizer's state trains as the whole one does") {
  Dice dice(3601);
  Seen seen;
  for (int round = 0; round < scaled(120); ++round) {
    const Trainable model = random_trainable(dice);
    const std::optional<Pipeline> pipeline = random_plan(dice, model, 4, true);
    if (!pipeline) continue;
    const Pipeline sharded = with_sharded_state(*pipeline);
    INFO("instance " << round << ": " << text_of(sharded));
    check_both(model, sharded, random_settings(dice, sharded.plan), seen);
  }
  if (scaled(120) < 120) return;
  CHECK(seen.stages[1] >= 10);
  CHECK(seen.stages[2] >= 10);
  CHECK(seen.stages[3] >= 10);
  CHECK(seen.several_buckets >= 10);
  CHECK(seen.uneven >= 10);
  CHECK(seen.ties >= 10);
  CHECK(seen.stages[4] >= 10);
  CHECK(seen.servers >= 10);
  CHECK(seen.optimizers.size() == 4);
}

TEST_CASE("whatever the schedule, devices of several stages gather the parameters of each") {
  Dice dice(3602);
  Seen seen;
  std::map<ScheduleFamily, int> families;
  for (int round = 0; round < scaled(20); ++round) {
    const Trainable model = random_transformer(dice);
    const std::optional<Pipeline> start = random_plan(dice, model, 2, false);
    if (!start) continue;
    for (const ScheduleFamily family : kScheduleFamilies) {
      const std::optional<Pipeline> pipeline = under_family(*start, family, 200);
      if (!pipeline) continue;
      const Pipeline sharded = with_sharded_state(*pipeline);
      INFO("instance " << round << ": " << text_of(sharded));
      ++families[family];
      check_both(model, sharded, random_settings(dice, sharded.plan), seen);
    }
  }
  for (const ScheduleFamily family : kScheduleFamilies) {
    INFO(to_string(family));
    if (scaled(20) >= 20) CHECK(families[family] >= 3);
  }
}

/// Trains for iterations from `begin` to `end`, from a checkpoint if there is one; the checkpoint
/// at the end, as a file.
std::string trained(const exec::TrainingJob& job, const Topology& topology,
                    const std::optional<std::string>& start, std::int64_t begin, std::int64_t end) {
  std::string file;
  exec::run_on_threads(job, topology, {}, [&](exec::DeviceTraining& device) {
    if (start) device.restore(exec::read_checkpoint(*start, "start").tensors);
    for (std::int64_t n = begin; n < end; ++n) device.run(n);
    exec::NamedTensors tensors = whole_model(device);
    if (!device.is_lead()) return;
    file = exec::write_checkpoint({.steps = end,
                                   .seed = job.settings.seed,
                                   .optimizer = job.settings.optimizer,
                                   .tensors = std::move(tensors)});
  });
  return file;
}

TEST_CASE("checkpoints are the same with sharded state, and go on with it and without") {
  Dice dice(3603);
  for (const nn::OptimizerKind kind : {nn::OptimizerKind::Momentum, nn::OptimizerKind::AdamW}) {
    for (const std::int32_t replicas : {2, 3}) {
      const Trainable model = random_transformer(dice);
      const auto layers = static_cast<std::int32_t>(model.layers->size());
      PlanShape shape{.micro_batch_size = 3,
                      .num_micro_batches = 2,
                      .depths = {2, 1},
                      .stages = {{.layers = 1}, {.layers = layers - 1}},
                      .bucket_size = {500}};
      for (std::int32_t d = 0; d < replicas; ++d) {
        shape.stages[0].devices.push_back(d);
        shape.stages[1].devices.push_back(replicas + d);
      }
      const Pipeline pipeline = with_sharded_state(Pipeline(
          model.profile, full_mesh(static_cast<std::size_t>(2 * replicas), {bytes_per_ns(1), {}}),
          shape));
      INFO(text_of(pipeline));
      const BothJobs jobs(model, pipeline, {.optimizer = {.kind = kind, .learning_rate = 0.05F}});
      const Topology& topology = pipeline.topology;
      const std::string sharded = trained(jobs.sharded, topology, std::nullopt, 0, 2);
      CHECK(sharded == trained(jobs.whole, topology, std::nullopt, 0, 2));
      const std::string whole = trained(jobs.whole, topology, std::nullopt, 0, 4);
      CHECK(trained(jobs.whole, topology, sharded, 2, 4) == whole);
      CHECK(trained(jobs.sharded, topology, sharded, 2, 4) == whole);
      // On other replicas and stages, of which one has no replicas.
      PlanShape other{
          .micro_batch_size = 3,
          .num_micro_batches = 2,
          .depths = {2, 1},
          .stages = {{.layers = layers - 1, .devices = {0}}, {.layers = 1, .devices = {1, 2}}}};
      const Pipeline elsewhere =
          with_sharded_state(Pipeline(model.profile, full_mesh(3, {bytes_per_ns(1), {}}), other));
      const BothJobs others(model, elsewhere, jobs.sharded.settings);
      CHECK(trained(others.sharded, elsewhere.topology, sharded, 2, 4) ==
            trained(others.whole, elsewhere.topology, sharded, 2, 4));
    }
  }
}

}  // namespace
}  // namespace dapple
