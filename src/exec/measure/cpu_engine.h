// Measures layers of a model on the core of the calling thread, in single precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dapple/exec/run/backend.h"
#include "dapple/nn/model.h"
#include "dapple/nn/optimizer.h"
#include "exec/measure/timed_passes.h"
#include "exec/message/clock.h"

namespace dapple::exec {

/// The CPU's engine, and the interface that timed_passes() expects of its parameter Engine.
class CpuEngine {
 public:
  using Tensor = nn::Tensor;
  using Stash = nn::Stash;
  class Layer;
  class Step;

  /// Begins a pass. Requires: nothing is being computed.
  void begin() {}
  Mark mark() const { return {.moment = monotonic_now()}; }
  std::int64_t moment_of(const Mark& mark) const { return mark.moment; }

  /// Returns tokens or targets where they are computed with.
  Tensor tokens(Tensor tensor) { return tensor; }
  /// Returns a layer's input where it is computed with: the numbers again and again.
  Tensor repeated(const Tensor& numbers, nn::Shape shape) {
    Tensor tensor = nn::zeros(std::move(shape));
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] = numbers.values[i % numbers.values.size()];
    }
    return tensor;
  }
  Tensor copy_of(const Tensor& tensor) { return tensor; }
  static Bytes size_of(const Tensor& tensor) {
    return {static_cast<std::int64_t>(tensor.values.size() * sizeof(float))};
  }
  /// The size of a tensor of that shape without padding between its rows.
  static Bytes size_of(const Tensor& tensor, const nn::Shape& /*shape*/) { return size_of(tensor); }
  static Bytes size_of(const Stash& stash) { return nn::size_of(stash); }
  /// The memory in use, and its peak since watch_memory(); not counted on a CPU.
  void watch_memory() {}
  Bytes memory_in_use() const { return {}; }
  Bytes most_memory_in_use() const { return {}; }
  /// The number of parameters on which the step of a model with `parameters` parameters is timed.
  std::size_t most_stepped(std::int64_t parameters) const { return stepped_parameters(parameters); }
};

/// A layer with parameters of its own.
class CpuEngine::Layer {
 public:
  /// Makes the `number`th layer of a model.
  Layer(CpuEngine& /*engine*/, const std::vector<nn::ModelLayer>& model, std::size_t number)
      : module_(*model[number].module) {
    const nn::ModelLayer& layer = model[number];
    for (const nn::ParameterSpec& spec : module_.parameters()) {
      const auto size = static_cast<std::size_t>(nn::count_of(spec.shape));
      nn::initialize(spec, layer.name + "." + spec.name, kMeasuredSeed,
                     parameters_.emplace_back(size));
      gradients_.emplace_back(size);
    }
    parameter_views_.assign(parameters_.begin(), parameters_.end());
    gradient_views_.assign(gradients_.begin(), gradients_.end());
  }

  /// The shape of the input as the layer before returns it: here without padding between rows.
  nn::Shape taken_shape(nn::Shape dense) const { return dense; }

  Tensor forward(Tensor input, const Tensor& targets, Stash& stash) const {
    return module_.forward(parameter_views_, std::move(input), targets, stash);
  }
  Tensor input_gradient(Tensor output_gradient, Stash& stash) const {
    return module_.input_gradient(parameter_views_, std::move(output_gradient), stash);
  }
  void weight_gradient(Stash& stash) const { module_.weight_gradient(stash, gradient_views_); }

 private:
  const nn::Module& module_;
  std::vector<std::vector<float>> parameters_;
  std::vector<std::vector<float>> gradients_;
  std::vector<std::span<const float>> parameter_views_;
  std::vector<std::span<float>> gradient_views_;
};

/// The step of an optimizer on a number of parameters.
class CpuEngine::Step {
 public:
  Step(CpuEngine& /*engine*/, nn::OptimizerKind kind, std::size_t parameters)
      : settings_{.kind = kind},
        parameters_(parameters, 1.0F),
        gradients_(parameters, 0.5F),
        state_(parameters * static_cast<std::size_t>(nn::state_count(kind))) {}

  void run() { nn::update(settings_, ++number_, parameters_, gradients_, state_); }

 private:
  nn::OptimizerSettings settings_;
  std::int64_t number_ = 0;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<float> state_;
};

}  // namespace dapple::exec
