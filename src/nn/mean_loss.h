// Losses that are means over the positions of a sample.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {

/// A loss whose forward replaces the scores by their gradients, for the backward.
class MeanLoss : public WithoutParameters {
 public:
  /// `width` is the number of scores for each position.
  explicit MeanLoss(std::int64_t width) : width_(width) {}

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, width_);
    return {};
  }

  Tensor forward(Parameters, Tensor input, const Tensor& targets, Stash& stash) const override {
    const std::int64_t samples = input.samples();
    Matrix rows = rows_of(input, width_);
    check(static_cast<std::int64_t>(targets.values.size()) == rows.rows(),
          "a loss needs a target for each position");
    const std::int64_t positions = rows.rows() / samples;
    const std::vector<float> of_rows =
        to_gradients(rows, targets, 1 / static_cast<float>(positions));
    Tensor losses = zeros({samples});
    auto of_row = of_rows.begin();
    for (float& loss : losses.values) {
      double sum = 0;
      for (std::int64_t position = 0; position < positions; ++position) sum += *of_row++;
      loss = static_cast<float>(sum / static_cast<double>(positions));
    }
    stash.tensors.push_back(std::move(input));
    return losses;
  }

  Tensor input_gradient(Parameters, Tensor output_gradient, Stash& stash) const override {
    Tensor gradient = std::move(stash.tensors[0]);
    stash.tensors.clear();
    Matrix samples = rows_of(gradient, count_of(gradient.shape) / gradient.samples());
    for (std::int64_t sample = 0; sample < samples.rows(); ++sample) {
      samples.row(sample) *= output_gradient.values[static_cast<std::size_t>(sample)];
    }
    return gradient;
  }

 protected:
  std::int64_t width() const { return width_; }

 private:
  /// Returns the loss of each row, and replaces its scores by their gradients times `weight`.
  virtual std::vector<float> to_gradients(Matrix& rows, const Tensor& targets,
                                          float weight) const = 0;

  std::int64_t width_;
};

}  // namespace dapple::nn
