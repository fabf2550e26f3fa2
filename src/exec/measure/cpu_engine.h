// Layers of a model measured on the core of the calling thread, in single precision.
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

class CpuEngine {
 public:
  using Tensor = nn::Tensor;
  using Stash = nn::Stash;
  class Layer;
  class Step;

  /// Of a pass, at rest.
  void begin() {}
  Mark mark() const { return {.moment = monotonic_now()}; }
  std::int64_t moment_of(const Mark& mark) const { return mark.moment; }

  /// What a layer is given: activations, or tokens and the right answers.
  Tensor numbers(Tensor tensor) { return tensor; }
  Tensor whole_numbers(Tensor tensor) { return tensor; }
  Tensor copy_of(const Tensor& tensor) { return tensor; }
  static Bytes size_of(const Tensor& tensor) {
    return {static_cast<std::int64_t>(tensor.values.size() * sizeof(float))};
  }
  /// Of a tensor of that shape without gaps between its rows.
  static Bytes size_of(const Tensor& tensor, const nn::Shape& /*shape*/) { return size_of(tensor); }
  static Bytes size_of(const Stash& stash) { return nn::size_of(stash); }
  /// Memory that is in use, and the most of it since watch_memory(); of a core nobody counts it.
  void watch_memory() {}
  Bytes memory_in_use() const { return {}; }
  Bytes most_memory_in_use() const { return {}; }
  /// Parameters on which a step is timed, of a model with so many.
  std::size_t most_stepped(std::int64_t parameters) const { return stepped_parameters(parameters); }
};

/// With parameters of its own.
class CpuEngine::Layer {
 public:
  /// The `number`th of a model.
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

  /// Of what it takes as it comes from the layer before: here without gaps between rows.
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

/// Of an optimizer on so many parameters.
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
