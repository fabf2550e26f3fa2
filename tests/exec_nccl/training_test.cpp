// Training over NCCL, replicas and pipelines of any schedule, against training on one CPU.

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "../support/trained_pipeline.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "dapple/exec/train/rank_connections.h"
#include "over_threads.h"

namespace dapple {
namespace {

using namespace small;

void check_training(const Trainable& model, const Pipeline& pipeline,
                    const exec::TrainingSettings& settings) {
  constexpr double kTolerance = 1e-4;
  const exec::TrainingJob job = job_of(model, pipeline, settings);
  const Outcome outcome = train(
      job, pipeline.topology, 2,
      [](const exec::TrainingJob& of, const exec::TrainingDevice& own) {
        return exec::make_cuda_backend(of, own, gpu_of(own.device));
      },
      [&](std::unique_ptr<exec::Transport> below,
          DeviceIndex device) -> std::unique_ptr<exec::Transport> {
        return std::make_unique<OverThreads>(std::move(below), pipeline.topology, device,
                                             exec::connections_of(job, device));
      });
  exec::PlainTraining plain(job);
  REQUIRE(outcome.iterations.size() == 2);
  for (std::size_t n = 0; n < outcome.iterations.size(); ++n) {
    const Outcome::Iteration& iteration = outcome.iterations[n];
    plain.restore(iteration.before);
    REQUIRE(iteration.loss == Approx(plain.run(static_cast<std::int64_t>(n))).epsilon(kTolerance));
    require_close(iteration.gradients, plain.tensors(exec::TensorKind::Gradients), kTolerance);
  }
}

TEST_CASE("over NCCL, gradients are those of one CPU") {
  Dice dice(6201);
  [[maybe_unused]] int replicated = 0;  // counted where every number of GPUs is there
  int stages = 0;
  for (int round = 0; round < scaled(6); ++round) {
    const Trainable model = random_trainable(dice);
    // Of some, a schedule that has more in flight than others.
    const bool is_deep = round % 2 == 1;
    std::optional<Pipeline> pipeline = random_plan(dice, model, 3, !is_deep);
    if (pipeline && is_deep) pipeline = under(*pipeline, {.family = ScheduleFamily::ZeroBubbleH2});
    if (!pipeline || !has_gpus_for(static_cast<std::size_t>(pipeline->topology.device_count())))
      continue;
    INFO("instance " << round << ": " << text_of(*pipeline));
    stages = std::max(stages, static_cast<int>(pipeline->plan.stages.size()));
    for (const StagePlan& stage : pipeline->plan.stages) {
      replicated += stage.devices.size() > 1 ? 1 : 0;
    }
    check_training(model, *pipeline, random_settings(dice, pipeline->plan));
  }
#ifdef DAPPLE_NCCL_ON_HOST
  if (scaled(6) < 8) return;
  CHECK(replicated >= 2);
  CHECK(stages >= 2);
#endif
}

TEST_CASE("over NCCL, with sharded state, gradients are those of one CPU") {
  Dice dice(6202);
  [[maybe_unused]] int replicated = 0;  // counted where every number of GPUs is there
  [[maybe_unused]] int tied = 0;
  for (int round = 0; round < scaled(8); ++round) {
    const Trainable model = round % 2 == 0 ? random_trainable(dice) : random_transformer(dice);
    const std::optional<Pipeline> pipeline = random_plan(dice, model, 3, true);
    if (!pipeline || !has_gpus_for(static_cast<std::size_t>(pipeline->topology.device_count())))
      continue;
    const Pipeline sharded = with_sharded_state(*pipeline);
    INFO("instance " << round << ": " << text_of(sharded));
    for (std::size_t s = 0; s < sharded.plan.stages.size(); ++s) {
      if (sharded.plan.stages[s].devices.size() == 1) continue;
      ++replicated;
      tied += ties_of(sharded.plan, {index_at<StageIndex>(s)}).empty() ? 0 : 1;
    }
    check_training(model, sharded, random_settings(dice, sharded.plan));
  }
#ifdef DAPPLE_NCCL_ON_HOST
  if (scaled(8) < 8) return;
  CHECK(replicated >= 2);
  CHECK(tied >= 1);
#endif
}

}  // namespace
}  // namespace dapple
