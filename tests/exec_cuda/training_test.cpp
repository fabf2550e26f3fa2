// Training by plans of every schedule on GPUs, against training on one CPU without a pipeline: all
// devices of a plan share one, or have as many as there are.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../support/rounded_layers.h"
#include "../support/through_host.h"
#include "../support/trained_pipeline.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "dapple/exec/measure/measure.h"
#include "dapple/exec/weights/checkpoint.h"
#include "on_gpus.h"

namespace dapple {
namespace {

using namespace small;

/// Wide enough that what is rounded is no single number; numbers between layers take two bytes.
Trainable in_half_precision(Dice& dice) {
  constexpr std::int64_t kHidden = 32;
  constexpr std::int64_t kSequence = 5;
  constexpr std::int64_t kVocabulary = 11;
  const TransformerBlockOperation block{.hidden = kHidden,
                                        .heads = 2,
                                        .feed_forward = 2 * kHidden,
                                        .sequence = kSequence,
                                        .causal = true};
  TransformerBlockOperation other = block;
  to_llama(other);
  const TrainableShape shape{
      .operations = {EmbeddingOperation{kVocabulary, kSequence, kHidden}, block, other,
                     LayerNormOperation{kHidden}, LinearOperation{kHidden, kVocabulary},
                     SoftmaxCrossEntropyOperation{kVocabulary}},
      .input = {kSequence},
      .tokens = kVocabulary,
      .classes = kVocabulary,
      .positions = {kSequence}};
  Trainable model = trainable(shape, dice);
  for (Layer& layer : model.profile.layers) {
    for (Measurement& measurement : layer.measurements) measurement.output.count /= 2;
  }
  return model;
}

double tolerance_of(cuda::Precision precision) {
  return precision == cuda::Precision::Float32 ? 1e-4 : 2e-2;
}

bool is_llama(const Trainable& model) {
  return std::ranges::any_of(*model.layers, [](const nn::ModelLayer& layer) {
    const auto* block = std::get_if<TransformerBlockOperation>(&layer.operation);
    return block != nullptr && !is_gpt2_block(*block);
  });
}

bool are_numbers(const exec::NamedTensors& tensors) {
  return std::ranges::all_of(tensors, [](const auto& named) {
    return std::ranges::all_of(named.second.values,
                               [](float value) { return std::isfinite(value); });
  });
}

/// The training on one CPU that a GPU's is compared with. In half precision it rounds what passes
/// between layers, too: a model may enlarge what these few roundings change beyond any tolerance
/// that shows a fault in other models.
exec::PlainTraining plain_training(const exec::TrainingJob& job) {
  const cuda::Precision precision = job.settings.precision;
  if (precision == cuda::Precision::Float32) return exec::PlainTraining(job);
  constexpr int kDigitsOfBFloat16 = 8;
  constexpr int kDigitsOfFloat16 = 11;
  return exec::PlainTraining(with_rounded_layers(
      job, precision == cuda::Precision::BFloat16 ? kDigitsOfBFloat16 : kDigitsOfFloat16));
}

/// Every iteration from the parameters that the plan's devices began it with. Gradients that are
/// too large for half precision are thrown away. How many iterations have had such.
int check_training(const Trainable& model, const Pipeline& pipeline,
                   const exec::TrainingSettings& settings, std::int64_t iterations,
                   const exec::MakeBackend& make_backend = on_gpu) {
  const exec::TrainingJob job = job_of(model, pipeline, settings);
  const Outcome outcome = train(job, pipeline.topology, iterations, make_backend);
  exec::PlainTraining plain = plain_training(job);
  const double tolerance = tolerance_of(settings.precision);
  int thrown_away = 0;
  for (std::size_t n = 0; n < outcome.iterations.size(); ++n) {
    const Outcome::Iteration& iteration = outcome.iterations[n];
    plain.restore(iteration.before);
    if (settings.precision == cuda::Precision::Float16 && !are_numbers(iteration.gradients)) {
      ++thrown_away;
      continue;
    }
    const double loss = plain.run(static_cast<std::int64_t>(n));
    REQUIRE(iteration.loss == Approx(loss).epsilon(tolerance));
    require_close(iteration.gradients, plain.tensors(exec::TensorKind::Gradients), tolerance);
  }
  // What a step makes of gradients that differ a little may differ as much as a step changes.
  if (settings.optimizer.kind == nn::OptimizerKind::Sgd) {
    require_close(outcome.parameters, plain.tensors(exec::TensorKind::Parameters), tolerance);
  }
  return thrown_away;
}

TEST_CASE("on a GPU, whatever the schedule, gradients are those of one CPU") {
  Dice dice(6101);
  std::map<ScheduleFamily, int> seen;
  int tied = 0;
  int replicated = 0;
  int recomputed = 0;
  int llamas = 0;
  for (int round = 0; round < scaled(3); ++round) {
    const Trainable model = random_transformer(dice);
    llamas += is_llama(model) ? 1 : 0;
    const std::optional<Pipeline> start = random_plan(dice, model, dice.roll(1, 3), false);
    if (!start) continue;
    for (const ScheduleFamily family : kScheduleFamilies) {
      const std::optional<Pipeline> pipeline = under_family(*start, family, 50);
      if (!pipeline) continue;
      INFO("instance " << round << ": " << text_of(*pipeline));
      ++seen[family];
      tied += pipeline->plan.tied_gradients.empty() ? 0 : 1;
      for (const StagePlan& stage : pipeline->plan.stages) {
        replicated += stage.devices.size() > 1 ? 1 : 0;
        recomputed += stage.recompute ? 1 : 0;
      }
      check_training(model, *pipeline, random_settings(dice, pipeline->plan), 1);
    }
  }
  if (scaled(3) < 3) return;  // few rounds, as under sanitizers
  CHECK(llamas >= 1);
  CHECK(replicated >= 2);
  CHECK(tied >= 2);
  CHECK(recomputed >= 2);
  for (const ScheduleFamily family : kScheduleFamilies) {
    INFO(to_string(family));
    CHECK(seen[family] >= 1);
  }
}

TEST_CASE("on one GPU or several, however samples are shared out, gradients are those of one CPU") {
  Dice dice(6102);
  int unequal = 0;
  for (int round = 0; round < scaled(16); ++round) {
    const Trainable model = random_trainable(dice);
    const std::optional<Pipeline> pipeline = random_plan(dice, model, 3, true);
    if (!pipeline) continue;
    INFO("instance " << round << ": " << text_of(*pipeline));
    for (const StagePlan& stage : pipeline->plan.stages) {
      const auto replicas = static_cast<std::int64_t>(stage.devices.size());
      if (pipeline->plan.micro_batch_size % replicas != 0) ++unequal;
    }
    check_training(model, *pipeline, random_settings(dice, pipeline->plan), 2,
                   round % 2 == 0 ? on_gpus : on_gpu);
  }
  if (scaled(16) >= 16) CHECK(unequal >= 3);
}

TEST_CASE("in half precision, gradients are those of one CPU but for rounding") {
  Dice dice(6103);
  int thrown_away = 0;
  for (int round = 0; round < scaled(6); ++round) {
    const Trainable model = in_half_precision(dice);
    const std::optional<Pipeline> pipeline = random_plan(dice, model, 2, false);
    if (!pipeline) continue;
    INFO("instance " << round << ": " << text_of(*pipeline));
    exec::TrainingSettings settings = random_settings(dice, pipeline->plan);
    settings.precision = dice.chance(50) ? cuda::Precision::BFloat16 : cuda::Precision::Float16;
    if (pipeline->plan.gradients.optimizer == OptimizerTiming::PerBucket) {
      settings.precision = cuda::Precision::BFloat16;
    }
    thrown_away += check_training(model, *pipeline, settings, 1);
  }
  CHECK(thrown_away <= scaled(6) / 6);
}

/// With figures measured on the GPU in the place of made-up ones.
Trainable measured_on_gpu(Trainable model, cuda::Precision precision) {
  io::Specification specification{.profile = model.profile, .operations = {}};
  specification.profile.optimizer.name = "adamw";
  specification.profile.optimizer.state_bytes_per_parameter_byte = Factor{2 * kOne.billionths};
  for (std::size_t i = 0; i < model.layers->size(); ++i) {
    const nn::ModelLayer& layer = (*model.layers)[i];
    specification.operations.push_back(layer.operation);
    // By which layers are told apart.
    specification.profile.layers[i].operation = layer.name;
  }
  model.profile = exec::measure_model(specification, "memory",
                                      {.batch_sizes = {1, 3},
                                       .repeats = 1,
                                       .device = model.profile.device,
                                       .on_gpu = true,
                                       .precision = precision})
                      .profile;
  return model;
}

TEST_CASE("a GPU's memory as large as its measured profile says is enough") {
  Dice dice(6109);
  int measured = 0;
  for (int round = 0; round < scaled(6); ++round) {
    const auto precision = dice.chance(50) ? cuda::Precision::Float32 : cuda::Precision::BFloat16;
    const Trainable guessed =
        precision == cuda::Precision::Float32 ? random_transformer(dice) : in_half_precision(dice);
    const Trainable model = measured_on_gpu(guessed, precision);
    const std::optional<Pipeline> start = random_plan(dice, model, 3, true);
    if (!start) continue;
    const ScheduleFamily family = kScheduleFamilies[static_cast<std::size_t>(
        dice.roll(0, static_cast<std::int64_t>(std::size(kScheduleFamilies)) - 1))];
    const std::optional<Pipeline> other = under_family(*start, family, 20);
    const Pipeline& pipeline = other ? *other : *start;
    INFO("instance " << round << ": " << text_of(pipeline));
    exec::TrainingSettings settings = random_settings(dice, pipeline.plan);
    settings.precision = precision;
    check_training(model, pipeline, settings, 1);
    ++measured;
  }
  if (scaled(6) >= 6) CHECK(measured >= 4);
}

/// One device without replicas, and two stages of which the first has two.
Pipeline placed(const Trainable& model, std::int32_t devices) {
  const auto layers = static_cast<std::int32_t>(model.layers->size());
  PlanShape shape{.micro_batch_size = 2, .num_micro_batches = 3};
  if (devices == 1) {
    shape.depths = {1};
    shape.stages = {{.layers = layers, .devices = {0}}};
  } else {
    shape.depths = {2, 1};
    shape.stages = {{.layers = 2, .devices = {0, 1}}, {.layers = layers - 2, .devices = {2}}};
  }
  return {model.profile, full_mesh(static_cast<std::size_t>(devices), {bytes_per_ns(1), {}}),
          plan_of(model.profile, shape)};
}

/// Parameters and state after so many iterations, from a model where one is given.
exec::NamedTensors trained(const exec::TrainingJob& job, const Topology& topology,
                           const exec::NamedTensors* start, const exec::MakeBackend& make_backend,
                           std::int64_t first) {
  std::vector<DeviceIndex> devices;
  for (const DeviceSchedule& schedule : job.devices) devices.push_back(schedule.device);
  exec::ThreadNetwork network(topology, devices, {});
  exec::NamedTensors model;
  side_by_side(devices.size(), [&](std::size_t i) {
    const auto end = network.end_of(devices[i]);
    exec::DeviceTraining device(job, devices[i], *end, make_backend);
    if (start != nullptr) device.restore(*start);
    for (std::int64_t n = first; n < first + 2; ++n) device.run(n);
    exec::NamedTensors tensors = whole_model(device);
    if (device.is_lead()) model = std::move(tensors);
    device.await_readers();
  });
  return model;
}

TEST_CASE("a training goes on on a GPU where a CPU has left it, and the other way around") {
  Dice dice(6104);
  const Trainable model = random_transformer(dice);
  // Gradients that consist of rounding errors alone make no step either.
  const exec::TrainingSettings settings{.optimizer = {.learning_rate = 0.01F, .epsilon = 1e-3F}};
  const Pipeline one = placed(model, 1);
  const Pipeline three = placed(model, 3);
  const exec::TrainingJob on_one = job_of(model, one, settings);
  const exec::TrainingJob on_three = job_of(model, three, settings);
  const exec::NamedTensors middle =
      trained(on_one, one.topology, nullptr, exec::make_cpu_backend, 0);
  const exec::NamedTensors expected =
      trained(on_one, one.topology, &middle, exec::make_cpu_backend, 2);
  const auto through_file = [&](exec::NamedTensors tensors) {
    return exec::read_checkpoint(exec::write_checkpoint({.optimizer = settings.optimizer,
                                                         .tensors = std::move(tensors)}),
                                 "memory")
        .tensors;
  };
  const exec::NamedTensors from_cpu = through_file(middle);
  require_close(trained(on_three, three.topology, &from_cpu, on_gpu, 2), expected, 1e-4);
  const exec::NamedTensors from_gpu =
      through_file(trained(on_three, three.topology, nullptr, on_gpu, 0));
  require_close(trained(on_one, one.topology, &from_gpu, exec::make_cpu_backend, 2), expected,
                1e-4);
  // What was read back is what had been set, to the bit.
  exec::ThreadNetwork network(one.topology, {on_one.devices.front().device}, {});
  const auto end = network.end_of(on_one.devices.front().device);
  exec::DeviceTraining device(on_one, on_one.devices.front().device, *end, on_gpu);
  device.restore(middle);
  require_same(whole_model(device), middle);
}

TEST_CASE("messages that pass through the host change nothing") {
  Dice dice(6105);
  const Trainable model = random_transformer(dice);
  const Pipeline pipeline = placed(model, 3);
  const exec::TrainingJob job = job_of(model, pipeline, {});
  const std::vector<DeviceIndex> devices = all_devices(pipeline.topology);
  exec::NamedTensors gradients[2];
  for (const bool through_host : {false, true}) {
    exec::ThreadNetwork network(pipeline.topology, devices, {});
    side_by_side(devices.size(), [&](std::size_t i) {
      const auto end = network.end_of(devices[i]);
      ThroughHost host(*end);
      exec::DeviceTraining device(job, devices[i], through_host ? host : *end, on_gpu);
      device.run(0);
      exec::NamedTensors gathered = device.gather(exec::TensorKind::Gradients);
      if (device.is_lead()) gradients[through_host ? 1 : 0] = std::move(gathered);
      device.await_readers();
    });
  }
  require_close(gradients[1], gradients[0], 1e-6);
}

TEST_CASE("moments of a GPU's work are in order, and lie in the iteration") {
  Dice dice(6106);
  const Trainable model = random_transformer(dice);
  const Pipeline pipeline = placed(model, 3);
  const exec::TrainingJob job = job_of(model, pipeline, {});
  const std::vector<DeviceIndex> devices = all_devices(pipeline.topology);
  exec::ThreadNetwork network(pipeline.topology, devices, {});
  side_by_side(devices.size(), [&](std::size_t i) {
    const auto end = network.end_of(devices[i]);
    exec::DeviceTraining device(job, devices[i], *end, on_gpu);
    for (std::int64_t n = 0; n < 2; ++n) {
      const exec::MeasuredIteration measured = device.run(n);
      std::int64_t free_from = measured.start - 1'000'000;  // clocks are compared to within that
      std::size_t computations = 0;
      for (const exec::MeasuredAction& action : measured.actions) {
        if (action.end < action.start) throw std::runtime_error("an action ends before it starts");
        if (stream_of(action.action.kind) != Stream::Compute) continue;
        // Clocks of events tick every half microsecond.
        if (action.start < free_from - 1'000) throw std::runtime_error("two things at a time");
        free_from = action.end;
        ++computations;
      }
      if (computations == 0) throw std::runtime_error("nothing was measured");
    }
    device.await_readers();
  });
}

TEST_CASE("on a GPU, a sharded state trains as the whole one does") {
  Dice dice(6111);
  for (const cuda::Precision precision : {cuda::Precision::Float32, cuda::Precision::BFloat16}) {
    const bool is_single = precision == cuda::Precision::Float32;
    int replicated = 0;
    for (int round = 0; round < scaled(4); ++round) {
      const Trainable model = is_single ? random_transformer(dice) : in_half_precision(dice);
      const std::optional<Pipeline> pipeline = random_plan(dice, model, 3, false);
      if (!pipeline) continue;
      const Pipeline sharded = with_sharded_state(*pipeline);
      INFO("instance " << round << ": " << text_of(sharded));
      // What small differences grow to does not depend on how small they are in its steps.
      exec::TrainingSettings settings{.optimizer = {.kind = nn::OptimizerKind::Momentum}};
      settings.precision = precision;
      const exec::TrainingJob job = job_of(model, sharded, settings);
      const Outcome ours = train(job, sharded.topology, 3, on_gpu);
      const Outcome theirs = train(with_whole_state(job), sharded.topology, 3, on_gpu);
      const double tolerance = tolerance_of(precision);
      require_close(ours.iterations.back().before, theirs.iterations.back().before, tolerance);
      require_close(ours.iterations.back().gradients, theirs.iterations.back().gradients,
                    tolerance);
      for (std::size_t s = 0; s < job.plan.stages.size(); ++s) {
        const std::vector<DeviceIndex>& replicas = job.plan.stages[s].devices;
        if (replicas.size() == 1) continue;
        ++replicated;
        std::size_t held = 0;
        for (const DeviceIndex device : replicas) {
          held +=
              on_gpu(job, device)->values(index_at<StageIndex>(s), exec::TensorKind::State).size();
        }
        const Bytes weights = sharded.costs.stages[s].replicas.front().memory.weights;
        CHECK(held * sizeof(float) == static_cast<std::size_t>(weights.count));
      }
    }
    if (scaled(4) >= 4) CHECK(replicated >= 2);
  }
}

/// In which iterations parameters change, from a model that is so many times too large.
std::vector<bool> steps_taken(const exec::TrainingJob& job, const Topology& topology, float factor,
                              std::int64_t iterations) {
  exec::PlainTraining plain(job);
  exec::NamedTensors start = plain.tensors(exec::TensorKind::Parameters);
  for (auto& [name, tensor] : start) {
    for (float& value : tensor.values) value *= factor;
  }
  start.merge(plain.tensors(exec::TensorKind::State));
  const std::vector<DeviceIndex> devices = all_devices(topology);
  exec::ThreadNetwork network(topology, devices, {});
  std::vector<bool> taken;
  side_by_side(devices.size(), [&](std::size_t i) {
    const auto end = network.end_of(devices[i]);
    exec::DeviceTraining device(job, devices[i], *end, on_gpu);
    device.restore(start);
    exec::NamedTensors before = whole_model(device);
    for (std::int64_t n = 0; n < iterations; ++n) {
      device.run(n);
      exec::NamedTensors after = whole_model(device);
      if (!device.is_lead()) continue;
      taken.push_back(!std::equal(before.begin(), before.end(), after.begin(),
                                  [](const auto& one, const auto& other) {
                                    return one.second.values == other.second.values;
                                  }));
      before = std::move(after);
    }
    device.await_readers();
  });
  return taken;
}

TEST_CASE("in float16 steps are left out while gradients are none, and taken at a lower scale") {
  Dice dice(6107);
  const Trainable model = in_half_precision(dice);
  const Pipeline pipeline = placed(model, 3);
  exec::TrainingSettings settings;
  settings.precision = cuda::Precision::Float16;
  const exec::TrainingJob job = job_of(model, pipeline, settings);
  // The first scale makes gradients that float16 does not hold.
  const std::vector<bool> lowered = steps_taken(job, pipeline.topology, 1, 4);
  CHECK_FALSE(lowered.front());
  CHECK(lowered.back());
  // Activations that it does not hold.
  CHECK(steps_taken(job, pipeline.topology, 1e6F, 2) == std::vector<bool>{false, false});
}

TEST_CASE("a GPU has room for workspaces as they were measured, not in proportion to samples") {
  Dice dice(6110);
  const Trainable model = random_transformer(dice);
  const Pipeline pipeline = placed(model, 1);  // micro-batches of two
  exec::TrainingJob job = job_of(model, pipeline, {});
  const auto memory_with = [&](Bytes workspace) {
    for (Layer& layer : job.measured) {
      layer.measurements = {layer.measurements.front()};
      layer.measurements.front().batch_size = 4;
      layer.measurements.front().workspace = workspace;
    }
    return exec::cuda_memory(job, DeviceIndex{0});
  };
  const exec::CudaMemory guessed = memory_with({});
  constexpr Bytes kWorkspace{std::int64_t{1} << 30};
  const exec::CudaMemory once = memory_with(kWorkspace);
  const exec::CudaMemory twice = memory_with(2 * kWorkspace);
  CHECK(guessed.workspace < once.workspace);
  CHECK(once.planned == twice.planned);
  // Half of it is in the memory model; a sixteenth of all is left to gaps.
  CHECK(twice.workspace - once.workspace == Bytes{(kWorkspace.count / 2) * 17 / 16});
}

TEST_CASE("a GPU with less memory than the plan needs is refused with both numbers") {
  Dice dice(6108);
  const Trainable model = random_transformer(dice);
  const Pipeline pipeline = placed(model, 1);
  exec::TrainingJob job = job_of(model, pipeline, {});
  job.memory.front() = Bytes{std::int64_t{1} << 50};
  const exec::CudaMemory needed = exec::cuda_memory(job, DeviceIndex{0});
  CHECK(needed.planned == job.memory.front());
  CHECK(needed.workspace.count > 0);
  const std::string planned = std::to_string(needed.planned.count);
  const std::string total = std::to_string(needed.total().count);
  REQUIRE_THROWS_WITH(exec::make_cuda_backend(job, DeviceIndex{0}, 0),
                      Catch::Contains("expected " + total + " bytes of free memory, " + planned +
                                      " by the plan's memory model and ") &&
                          Catch::Contains(" of workspace, got "));
}

}  // namespace
}  // namespace dapple
