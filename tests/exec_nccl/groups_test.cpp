// Training over NCCL by groups of ranks, each on a GPU, against training on one CPU.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "../support/trained_groups.h"
#include "../support/trained_pipeline.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "dapple/exec/train/rank_connections.h"
#include "over_threads.h"

#ifdef DAPPLE_NCCL_ON_HOST
#include "../cuda_on_host/kernels.h"
#endif

namespace dapple {
namespace {

using namespace small;

Outcome train_over_nccl(const exec::TrainingJob& job, std::int64_t iterations) {
  const Topology topology = devices_of(job);
  return train(
      job, topology, iterations,
      [](const exec::TrainingJob& of, const exec::TrainingDevice& own) {
        return exec::make_cuda_backend(of, own, gpu_of(of.number_of(own.device, own.number)));
      },
      [&](std::unique_ptr<exec::Transport> below,
          DeviceIndex number) -> std::unique_ptr<exec::Transport> {
        return std::make_unique<OverThreads>(std::move(below), topology, number,
                                             exec::connections_of(job, number));
      });
}

TEST_CASE("over NCCL, ranks of groups compute the gradients and the losses of one CPU",
          "[groups]") {
  Dice dice(6501);
  [[maybe_unused]] std::map<std::string, int> seen;  // where every number of GPUs is there
  const int rounds = scaled(6);
  for (int round = 0; round < rounds; ++round) {
    auto [form, model] = random_group_model(dice);
    const std::optional<Pipeline> plan = random_plan(dice, model, 2, true);
    if (!plan) continue;
    form.shards_optimizer = form.full_shards == 1 && dice.chance(40);
    if (round % 2 == 0) shard_in_groups(form);
    const Pipeline pipeline = in_groups(*plan, form, form.replicas_in_group());
    const exec::TrainingJob job = job_of(model, pipeline, random_settings(dice, pipeline.plan));
    if (!has_gpus_for(job.numbers().size())) continue;
    INFO("instance " << round << ": " << text_of(pipeline) << ", " << to_text(form));
    seen["tensor"] += form.tensor > 1;
    seen["sequence"] += form.sequence;
    seen["context"] += form.context > 1;
    seen["shards"] += form.full_shards > 1;
    seen["copies"] += form.copies() > 1 && form.full_shards == 1;
    seen["sharded in groups"] += form.optimizer_shards > 0;
    seen["experts"] += form.experts > 1;
    seen["experts, sequence"] += form.experts > 1 && form.sequence;
    seen["experts, sharded"] += form.experts > 1 && form.shards_optimizer;
    seen["divided experts"] += form.expert_tensor > 1;
    seen["stages"] += job.plan.stages.size() > 1;
    require_as_plain(job, train_over_nccl(job, 2), 1e-4);
  }
#ifdef DAPPLE_NCCL_ON_HOST
  if (rounds < 24) return;
  for (const char* const form :
       {"tensor", "sequence", "context", "shards", "copies", "sharded in groups", "experts",
        "experts, sequence", "experts, sharded", "divided experts", "stages"}) {
    INFO(form);
    CHECK(seen[form] >= 1);
  }
#endif
}

TEST_CASE("over NCCL, stages in different forms compute the gradients of one CPU", "[groups]") {
  Dice dice(6502);
  [[maybe_unused]] int seen = 0;  // where every number of GPUs is there
  const int rounds = scaled(6);
  for (int round = 0; round < rounds; ++round) {
    const std::vector<Parallelism> forms = random_forms(dice);
    const Trainable whole = random_shareable(dice, joined(forms));
    const Trainable model = as_rank(whole, forms);
    const std::optional<Pipeline> plan = random_plan(dice, as_rank(whole, forms.front()), 2, true);
    if (!plan) continue;
    const std::optional<Pipeline> pipeline = with_stage_forms(model, *plan, forms, dice);
    if (!pipeline || !exec::has_different_groups(pipeline->plan)) continue;
    const exec::TrainingJob job = job_of(model, *pipeline, random_settings(dice, pipeline->plan));
    if (!has_gpus_for(job.numbers().size())) continue;
    INFO("instance " << round << ": " << text_of(*pipeline));
    ++seen;
    require_as_plain(job, train_over_nccl(job, 2), 5e-4);
  }
#ifdef DAPPLE_NCCL_ON_HOST
  if (rounds >= 6) CHECK(seen >= 2);
#endif
}

TEST_CASE("over NCCL, groups of different sizes compute the gradients of one CPU", "[groups]") {
  Dice dice(6504);
  [[maybe_unused]] int seen = 0;  // where every number of GPUs is there
  const int rounds = scaled(4);
  for (int round = 0; round < rounds; ++round) {
    const std::optional<JobOfSizes> made = random_job_of_sizes(dice);
    if (!made) continue;
    // Some devices between groups may be left out.
    const auto gpus = 1 + std::ranges::max(made->job.numbers()).value;
    if (!has_gpus_for(static_cast<std::size_t>(gpus))) continue;
    INFO("instance " << round << ": " << made->text);
    ++seen;
    require_as_plain(made->job, train_over_nccl(made->job, 2), 5e-4);
  }
#ifdef DAPPLE_NCCL_ON_HOST
  if (rounds >= 4) CHECK(seen >= 2);
#endif
}

#ifdef DAPPLE_NCCL_ON_HOST
/// Runs some iterations on all devices, and returns how many kernels they had launched before and
/// afterwards.
std::pair<std::size_t, std::size_t> kernels_launched(const exec::TrainingJob& job) {
  const Topology topology = devices_of(job);
  const std::vector<DeviceIndex> numbers = job.numbers();
  exec::ThreadNetwork network(topology, numbers, {});
  std::pair<std::size_t, std::size_t> launched;
  cuda_on_host::forget_kernels();
  side_by_side(numbers.size(), [&](std::size_t i) {
    OverThreads end(network.end_of(numbers[i]), topology, numbers[i],
                    exec::connections_of(job, numbers[i]));
    exec::DeviceTraining device(
        job, numbers[i], end, [](const exec::TrainingJob& of, const exec::TrainingDevice& own) {
          return exec::make_cuda_backend(of, own, gpu_of(of.number_of(own.device, own.number)));
        });
    end.barrier();
    if (i == 0) launched.first = cuda_on_host::kernels_launched();
    end.barrier();
    for (std::int64_t iteration = 0; iteration < 2; ++iteration) device.run(iteration);
    end.barrier();
    if (i == 0) launched.second = cuda_on_host::kernels_launched();
    device.await_readers();
  });
  return launched;
}

TEST_CASE("no iteration of groups launches a kernel for the first time", "[groups]") {
  Dice dice(6503);
  for (int round = 0; round < scaled(4); ++round) {
    auto [form, model] = random_group_model(dice);
    const std::optional<Pipeline> plan = random_plan(dice, model, 2, false);
    if (!plan) continue;
    form.shards_optimizer = form.full_shards == 1 && dice.chance(40);
    if (round % 2 == 0) shard_in_groups(form);
    const Pipeline pipeline = in_groups(*plan, form, form.replicas_in_group());
    const exec::TrainingJob job = job_of(model, pipeline, random_settings(dice, pipeline.plan));
    INFO("instance " << round << ": " << text_of(pipeline) << ", " << to_text(form));
    const auto [before, after] = kernels_launched(job);
    CHECK(before > 0);
    CHECK(after == before);
  }
}
#endif

}  // namespace
}  // namespace dapple
