// A module with parameters of its own, run forward and backward.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dapple/nn/module.h"

namespace dapple::small {

/// Numbers of all parameters of a module, each `shift` floats behind an aligned address.
class ParameterValues {
 public:
  explicit ParameterValues(const nn::Module& module, std::size_t shift = 0) : shift_(shift) {
    for (const nn::ParameterSpec& parameter : module.parameters()) {
      values_.emplace_back(static_cast<std::size_t>(nn::count_of(parameter.shape)) + shift);
    }
  }

  std::size_t size() const { return values_.size(); }
  std::span<float> operator[](std::size_t i) { return std::span(values_[i]).subspan(shift_); }
  std::vector<std::span<const float>> read() const {
    std::vector<std::span<const float>> spans;
    for (const auto& values : values_) spans.push_back(std::span(values).subspan(shift_));
    return spans;
  }
  std::vector<std::span<float>> write() {
    std::vector<std::span<float>> spans;
    for (auto& values : values_) spans.push_back(std::span(values).subspan(shift_));
    return spans;
  }

 private:
  std::size_t shift_;
  std::vector<std::vector<float>> values_;
};

/// What a forward gave, what the backward makes of it.
struct Pass {
  nn::Stash stash;
  nn::Tensor output;
  nn::Tensor input_gradient;
};

inline Pass forward(const nn::Module& module, const ParameterValues& parameters, nn::Tensor input,
                    const nn::Tensor& targets) {
  Pass pass;
  const auto values = parameters.read();
  pass.output = module.forward(values, std::move(input), targets, pass.stash);
  return pass;
}

inline void input_gradient(const nn::Module& module, const ParameterValues& parameters,
                           nn::Tensor slope, Pass& pass) {
  const auto values = parameters.read();
  pass.input_gradient = module.input_gradient(values, std::move(slope), pass.stash);
}

inline void weight_gradient(const nn::Module& module, Pass& pass, ParameterValues& sums) {
  const auto gradients = sums.write();
  module.weight_gradient(pass.stash, gradients);
}

/// Norm of the difference over the norm of what is expected.
template <class Found, class Expected>
double relative_difference(const Found& found, const Expected& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double wanted = static_cast<double>(expected[i]);
    difference += std::pow(static_cast<double>(found[i]) - wanted, 2);
    norm += std::pow(wanted, 2);
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

}  // namespace dapple::small
