// Training on a CPU as in half precision: what passes between layers is rounded, and so are the
// parameters that they compute with. Rounding once at the same places as a GPU does, it goes the
// same way where a model enlarges rounding errors; what is rounded within layers remains.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dapple/exec/train/training_job.h"
#include "dapple/nn/module.h"

namespace dapple::small {

/// Rounds to so many binary digits, of halves to the even one, whatever the exponent: gradients are
/// scaled where they would be too small.
inline void round_to(int digits, std::span<float> values) {
  const float factor = std::ldexp(1.0F, 24 - digits) + 1;
  for (float& value : values) {
    const volatile float product = value * factor;
    const volatile float rest = product - value;
    value = product - rest;
  }
}

/// A layer's module whose parameters, output and gradient of the input are rounded.
class RoundedModule : public nn::Module {
 public:
  /// The output of a loss, which is a sum in single precision, is not rounded.
  RoundedModule(std::shared_ptr<const std::vector<nn::ModelLayer>> layers, std::size_t layer,
                int digits)
      : layers_(std::move(layers)),
        inner_(*(*layers_)[layer].module),
        is_loss_(layer + 1 == layers_->size()),
        digits_(digits) {}

  const std::vector<nn::ParameterSpec>& parameters() const override { return inner_.parameters(); }
  nn::Shape output_shape(const nn::Shape& sample) const override {
    return inner_.output_shape(sample);
  }

  nn::Tensor forward(nn::Parameters parameters, nn::Tensor input, const nn::Tensor& targets,
                     nn::Stash& stash) const override {
    const Rounded rounded(parameters, digits_);
    nn::Tensor output = inner_.forward(rounded.views, std::move(input), targets, stash);
    if (!is_loss_) round_to(digits_, output.values);
    return output;
  }

  nn::Tensor input_gradient(nn::Parameters parameters, nn::Tensor output_gradient,
                            nn::Stash& stash) const override {
    const Rounded rounded(parameters, digits_);
    nn::Tensor gradient = inner_.input_gradient(rounded.views, std::move(output_gradient), stash);
    round_to(digits_, gradient.values);
    return gradient;
  }

  void weight_gradient(nn::Stash& stash, nn::Gradients sums) const override {
    inner_.weight_gradient(stash, sums);
  }

 private:
  struct Rounded {
    Rounded(nn::Parameters parameters, int digits) {
      for (const std::span<const float> one : parameters) {
        values.emplace_back(one.begin(), one.end());
        round_to(digits, values.back());
      }
      views.assign(values.begin(), values.end());
    }
    std::vector<std::vector<float>> values;
    std::vector<std::span<const float>> views;
  };

  const std::shared_ptr<const std::vector<nn::ModelLayer>> layers_;
  const nn::Module& inner_;
  const bool is_loss_;
  const int digits_;
};

/// The same job with layers that round to so many binary digits.
inline exec::TrainingJob with_rounded_layers(exec::TrainingJob job, int digits) {
  std::vector<nn::ModelLayer> layers;
  for (std::size_t i = 0; i < job.layers->size(); ++i) {
    const nn::ModelLayer& layer = (*job.layers)[i];
    layers.push_back({.name = layer.name,
                      .operation = layer.operation,
                      .module = std::make_unique<RoundedModule>(job.layers, i, digits),
                      .input = layer.input,
                      .output = layer.output,
                      .targets = layer.targets,
                      .tied_to = layer.tied_to,
                      .tied_parameters = layer.tied_parameters});
  }
  job.layers = std::make_shared<const std::vector<nn::ModelLayer>>(std::move(layers));
  return job;
}

}  // namespace dapple::small
