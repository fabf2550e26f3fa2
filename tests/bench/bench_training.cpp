// What a pipeline costs where there is none: a step by a plan of one stage on one device against
// the same step without interpreter, streams and messages. Of the whole process, so that what other
// threads do counts and what other programs do does not.

#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "../support/trainable.h"
#include "dapple/command_line/freed_memory.h"
#include "dapple/exec/train/train.h"

namespace {

using namespace dapple;
using namespace dapple::small;

/// GPT-2 with four blocks of 64, eight micro-batches of two sequences of 64.
exec::TrainingJob make_job(const Topology& topology) {
  Dice dice(1);
  constexpr std::int64_t kHidden = 64;
  constexpr std::int64_t kSequence = 64;
  constexpr std::int64_t kVocabulary = 256;
  TrainableShape shape{.operations = {EmbeddingOperation{kVocabulary, kSequence, kHidden}},
                       .input = {kSequence},
                       .tokens = kVocabulary,
                       .classes = kVocabulary,
                       .positions = {kSequence}};
  for (int block = 0; block < 4; ++block) {
    shape.operations.emplace_back(TransformerBlockOperation{.hidden = kHidden,
                                                            .heads = 4,
                                                            .feed_forward = 4 * kHidden,
                                                            .sequence = kSequence,
                                                            .causal = true});
  }
  shape.operations.emplace_back(LinearOperation{kHidden, kVocabulary, false});
  shape.operations.emplace_back(SoftmaxCrossEntropyOperation{.classes = kVocabulary});
  const Trainable model = trainable(shape, dice);
  const auto layers = static_cast<std::int32_t>(model.layers->size());
  const Plan plan = plan_of(model.profile, {.micro_batch_size = 2,
                                            .num_micro_batches = 8,
                                            .depths = {1},
                                            .stages = {{.layers = layers, .devices = {0}}}});
  return exec::make_training_job(plan, model.profile, topology, model.layers, model.batches, {});
}

void step_without_pipeline(benchmark::State& state) {
  command_line::keep_freed_memory();
  const Topology topology(full_mesh(1, {bytes_per_ns(1), {}}));
  exec::PlainTraining plain(make_job(topology));
  std::int64_t iteration = 0;
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(plain.run(iteration++));
}
BENCHMARK(step_without_pipeline)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

void step_of_one_stage(benchmark::State& state) {
  command_line::keep_freed_memory();
  const Topology topology(full_mesh(1, {bytes_per_ns(1), {}}));
  const exec::TrainingJob job = make_job(topology);
  exec::ThreadNetwork network(topology, {job.devices.front().device}, {});
  const auto end = network.end_of(job.devices.front().device);
  exec::DeviceTraining device(job, job.devices.front().device, *end);
  std::int64_t iteration = 0;
  for ([[maybe_unused]] auto _ : state) {
    device.run(iteration++);
    benchmark::DoNotOptimize(device.loss());
  }
}
BENCHMARK(step_of_one_stage)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

}  // namespace

BENCHMARK_MAIN();
