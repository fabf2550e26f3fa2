// What a device has computed on its GPU before it sends or reduces anything.

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "../support/trained_pipeline.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "gpu_ends.h"

#ifdef DAPPLE_NCCL_ON_HOST
#include "../cuda_on_host/kernels.h"
#endif

namespace dapple {
namespace {

using namespace small;

/// A job of random settings in one of the precisions; none where the plan is not valid.
std::optional<exec::TrainingJob> random_job(Dice& dice, cuda::Precision precision) {
  const Trainable model = random_trainable(dice);
  const std::optional<Pipeline> pipeline = random_plan(dice, model, 2, false);
  if (!pipeline) return std::nullopt;
  exec::TrainingJob job = job_of(model, *pipeline, random_settings(dice, pipeline->plan));
  job.settings.precision = precision;
  return job;
}

bool are_zeros(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return value == 0; });
}

void check_untrained(const exec::TrainingJob& job, DeviceIndex device) {
  const auto on_gpu = exec::make_cuda_backend(job, device, gpu_of(device));
  const auto on_cpu = exec::make_cpu_backend(job, device);
  CHECK(on_gpu->losses().empty());
  for (const StageIndex stage : on_gpu->stages()) {
    CHECK(on_gpu->most_held(stage).micro_batches == 0);
    CHECK(are_zeros(on_gpu->values(stage, exec::TensorKind::Gradients)));
    CHECK(are_zeros(on_gpu->values(stage, exec::TensorKind::State)));
    CHECK(std::ranges::equal(on_gpu->values(stage, exec::TensorKind::Parameters),
                             on_cpu->values(stage, exec::TensorKind::Parameters)));
  }
}

TEST_CASE("a micro-batch that was computed to warm up has left no trace") {
  Dice dice(6301);
  for (int round = 0; round < scaled(6); ++round) {
    const std::optional<exec::TrainingJob> job = random_job(dice, cuda::Precision::Float32);
    if (!job || !has_gpus_for(job->devices.size())) continue;
    for (const DeviceSchedule& device : job->devices) check_untrained(*job, device.device);
  }
}

#ifdef DAPPLE_NCCL_ON_HOST
TEST_CASE("no iteration launches a kernel for the first time") {
  Dice dice(6302);
  for (int round = 0; round < scaled(12); ++round) {
    const auto precision = round % 2 == 0 ? cuda::Precision::Float32 : cuda::Precision::BFloat16;
    const std::optional<exec::TrainingJob> job = random_job(dice, precision);
    if (!job) continue;
    cuda_on_host::forget_kernels();
    exec::PlainTraining training(*job,
                                 [](const exec::TrainingJob& of, const exec::TrainingDevice& own) {
                                   return exec::make_cuda_backend(of, own, 0);
                                 });
    const std::size_t launched = cuda_on_host::kernels_launched();
    CHECK(launched > 0);
    for (std::int64_t iteration = 0; iteration < 2; ++iteration) training.run(iteration);
    CHECK(cuda_on_host::kernels_launched() == launched);
  }
}
#endif

}  // namespace
}  // namespace dapple
