// Passes over the distinct layers of a model, forward and then in reverse order backward, followed
// by an optimizer's step, on any engine (cpu_engine.h documents the interface). An engine may
// merely enqueue its work; then moments are known once it is idle.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dapple/core/random.h"
#include "dapple/exec/run/backend.h"
#include "exec/measure/measured_passes.h"

namespace dapple::exec {

/// The durations of timed work, in its order, once the engine knows them.
template <class Engine>
class Stopwatch {
 public:
  explicit Stopwatch(Engine& engine) : engine_(engine) {}

  template <class Work>
  void time(const Work& work) {
    const Mark start = engine_.mark();
    work();
    marked_.push_back({start, engine_.mark()});
  }
  /// Appends the durations of the work timed since the last call.
  void settle(std::vector<Duration>& times) {
    for (const auto& [start, end] : marked_) {
      times.push_back({engine_.moment_of(end) - engine_.moment_of(start)});
    }
    marked_.clear();
  }

 private:
  Engine& engine_;
  std::vector<std::pair<Mark, Mark>> marked_;
};

inline nn::Shape of_samples(std::int64_t samples, nn::Shape shape) {
  shape.insert(shape.begin(), samples);
  return shape;
}

/// Returns random tokens below `below`.
inline nn::Tensor random_tokens(nn::Shape shape, std::int64_t below) {
  nn::Tensor tensor = nn::zeros(std::move(shape));
  const RandomStream stream(kMeasuredSeed);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] = static_cast<float>(stream.below(below, i));
  }
  return tensor;
}

/// Returns as many normally distributed numbers as a tensor of that shape has, but at most a
/// million, which larger tensors repeat: the time of a pass does not depend on the values, and
/// those of a loss over a large vocabulary would take longer to draw than all passes.
inline nn::Tensor random_numbers(const nn::Shape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  nn::Tensor tensor = nn::zeros({std::min(nn::count_of(shape), kMost)});
  const RandomStream stream(kMeasuredSeed);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] = stream.normal_pair(i).first;
  }
  return tensor;
}

/// A layer with parameters of its own, timed pass by pass.
template <class Engine>
class TimedLayer {
 public:
  /// Makes the `number`th layer of a model.
  TimedLayer(Engine& engine, const std::vector<nn::ModelLayer>& model, std::size_t number,
             const std::vector<std::int64_t>& batch_sizes)
      : engine_(engine), output_shape_(model[number].output), layer_(engine, model, number) {
    for (const std::int64_t samples : batch_sizes) add_batch(samples, model[number]);
  }

  /// Runs the forward for the `number`th batch size.
  void forward(std::size_t number) {
    Batch& batch = batches_[number];
    typename Engine::Tensor input = engine_.copy_of(batch.input);
    engine_.watch_memory();
    batch.forwards.time([&] { output_ = layer_.forward(std::move(input), batch.targets, stash_); });
    note_workspace(engine_.memory_in_use(), batch);
    batch.passes.sizes.output =
        Engine::size_of(output_, of_samples(batch.passes.sizes.batch_size, output_shape_));
    batch.passes.sizes.stash = Engine::size_of(stash_);
  }

  /// Runs the backward of the last forward, with the output in place of its gradient, as the time
  /// does not depend on the values.
  void backward(std::size_t number) {
    Batch& batch = batches_[number];
    typename Engine::Tensor gradient;
    const Bytes before = engine_.memory_in_use();
    engine_.watch_memory();
    batch.input_gradients.time(
        [&] { gradient = layer_.input_gradient(std::move(output_), stash_); });
    batch.weight_gradients.time([&] { layer_.weight_gradient(stash_); });
    note_workspace(before + Engine::size_of(gradient), batch);
    stash_ = {};
  }

  /// Collects the times of finished passes.
  void settle() {
    for (Batch& batch : batches_) {
      batch.forwards.settle(batch.passes.forwards);
      batch.input_gradients.settle(batch.passes.input_gradients);
      batch.weight_gradients.settle(batch.passes.weight_gradients);
    }
  }

  /// Drops the times of all passes made so far.
  void forget() {
    for (Batch& batch : batches_) {
      batch.passes.forwards.clear();
      batch.passes.input_gradients.clear();
      batch.passes.weight_gradients.clear();
    }
  }

  const Passes& passes(std::size_t number) const { return batches_[number].passes; }

 private:
  struct Batch {
    explicit Batch(Engine& engine)
        : forwards(engine), input_gradients(engine), weight_gradients(engine) {}

    typename Engine::Tensor input;
    typename Engine::Tensor targets;
    Stopwatch<Engine> forwards;
    Stopwatch<Engine> input_gradients;
    Stopwatch<Engine> weight_gradients;
    Passes passes;
  };

  void add_batch(std::int64_t samples, const nn::ModelLayer& layer) {
    const auto* embedding = std::get_if<EmbeddingOperation>(&layer.operation);
    const auto* loss = std::get_if<SoftmaxCrossEntropyOperation>(&layer.operation);
    Batch& batch = batches_.emplace_back(engine_);
    const nn::Shape shape = of_samples(samples, layer.input);
    if (embedding != nullptr) {
      batch.input = engine_.tokens(random_tokens(shape, embedding->vocabulary));
    } else {
      nn::Shape taken = layer_.taken_shape(shape);
      const nn::Tensor numbers = random_numbers(taken);
      batch.input = engine_.repeated(numbers, std::move(taken));
    }
    if (loss != nullptr) {
      batch.targets =
          engine_.tokens(random_tokens(of_samples(samples, layer.targets), loss->classes));
    }
    batch.passes.sizes.batch_size = samples;
  }

  /// Updates the workspace, which is the peak memory beyond what is accounted for: the output and
  /// stash after a forward, the stash and both gradients during a backward.
  void note_workspace(Bytes known, Batch& batch) const {
    Bytes& workspace = batch.passes.sizes.workspace;
    workspace = std::max(workspace, engine_.most_memory_in_use() - known);
  }

  Engine& engine_;
  const nn::Shape output_shape_;  // of one sample
  typename Engine::Layer layer_;
  std::vector<Batch> batches_;      // by batch size
  typename Engine::Tensor output_;  // of the current pass
  typename Engine::Stash stash_;
};

/// Returns the number of parameters on which a model's optimizer step is timed: all of them, but at
/// most four million, as the time per parameter no longer changes beyond that.
inline std::size_t stepped_parameters(std::int64_t parameter_count) {
  constexpr std::int64_t kMost = 4'000'000;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(parameter_count, 1, kMost));
}

/// Returns the largest drift of any batch size.
template <class Engine>
double most_drift_of(const std::vector<TimedLayer<Engine>>& timed, std::size_t batch_sizes) {
  double most = 0;
  for (std::size_t n = 0; n < batch_sizes; ++n) {
    std::vector<std::vector<Duration>> times;
    for (const TimedLayer<Engine>& layer : timed) times.push_back(layer.passes(n).wholes());
    most = std::max(most, drift_of(times));
  }
  return most;
}

/// Runs passes over all timed layers, for each batch size in turn, and the optimizer's step, whose
/// parameters are not used between steps. It ends together with the other cores.
template <class Engine>
CorePasses timed_passes(Engine& engine, const MeasurementSubject& subject,
                        const MeasureOptions& options, AgreeingCore& core) {
  std::vector<TimedLayer<Engine>> timed;
  timed.reserve(subject.kinds.timed.size());
  for (const std::size_t layer : subject.kinds.timed) {
    timed.emplace_back(engine, subject.model, layer, options.batch_sizes);
  }
  const std::size_t stepped = engine.most_stepped(subject.parameter_count());
  typename Engine::Step step(engine, subject.optimizer, stepped);
  Stopwatch<Engine> steps(engine);
  CorePasses passes{.by_kind = {},
                    .whole = std::vector<Passes>(options.batch_sizes.size()),
                    .steps = {},
                    .counted = 0,
                    .warm_ups = 0,
                    .was_stopped = false,
                    .drift = 0,
                    .stepped = static_cast<std::int64_t>(stepped * sizeof(float)),
                    .gpu = {}};
  const auto goes_on = [&] {
    if (passes.warm_ups + passes.counted < kWarmUps + options.repeats) return true;
    if (passes.counted % options.repeats != 0) return passes.counted < options.most_repeats;
    passes.drift = most_drift_of(timed, options.batch_sizes.size());
    const bool is_agreed = core.agree(passes.drift <= kTrustedDrift);
    return !is_agreed && passes.counted < options.most_repeats;
  };
  while (goes_on()) {
    if (passes.counted > 0 && passes.warm_ups < kWarmUps) {
      for (TimedLayer<Engine>& layer : timed) layer.forget();
      passes.steps.clear();
      passes.warm_ups += std::exchange(passes.counted, 0);
    }
    engine.begin();
    for (std::size_t n = 0; n < options.batch_sizes.size(); ++n) {
      for (TimedLayer<Engine>& layer : timed) layer.forward(n);
      for (auto layer = timed.rbegin(); layer != timed.rend(); ++layer) layer->backward(n);
    }
    steps.time([&] { step.run(); });
    for (TimedLayer<Engine>& layer : timed) layer.settle();
    steps.settle(passes.steps);
    ++passes.counted;
    passes.was_stopped = options.should_stop && options.should_stop();
    if (passes.was_stopped) {
      passes.drift = most_drift_of(timed, options.batch_sizes.size());
      break;
    }
  }
  passes.by_kind.resize(subject.kinds.first.size(),
                        std::vector<Passes>(options.batch_sizes.size()));
  for (std::size_t i = 0; i < timed.size(); ++i) {
    std::vector<Passes>& of_kind = passes.by_kind[subject.kinds.of_layer[subject.kinds.timed[i]]];
    for (std::size_t n = 0; n < of_kind.size(); ++n) {
      of_kind[n].append(timed[i].passes(n));
      passes.whole[n].add(timed[i].passes(n));
    }
  }
  return passes;
}

}  // namespace dapple::exec
