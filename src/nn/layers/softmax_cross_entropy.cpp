#include <cmath>
#include <utility>

#include "dapple/core/error.h"
#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

class SoftmaxCrossEntropy : public WithoutParameters {
 public:
  explicit SoftmaxCrossEntropy(const SoftmaxCrossEntropyOperation& operation)
      : classes_(operation.classes) {}

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, classes_);
    return {};
  }

  /// Replaces the input by its gradient, (softmax - one-hot target) / positions, and stashes it for
  /// the backward.
  Tensor forward(Parameters, Tensor input, const Tensor& targets, Stash& stash) const override {
    const std::int64_t samples = input.samples();
    Matrix rows = rows_of(input, classes_);
    check(static_cast<std::int64_t>(targets.values.size()) == rows.rows(),
          "a loss needs a target for each position");
    const std::int64_t positions = rows.rows() / samples;
    Tensor losses = zeros({samples});
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      double sum = 0;
      for (std::int64_t row = sample * positions; row < (sample + 1) * positions; ++row) {
        const auto target =
            static_cast<std::int64_t>(targets.values[static_cast<std::size_t>(row)]);
        sum += to_gradient(rows.row(row), target, 1 / static_cast<float>(positions));
      }
      losses.values[static_cast<std::size_t>(sample)] =
          static_cast<float>(sum / static_cast<double>(positions));
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

 private:
  /// Returns the loss of one position, and replaces its scores by their gradients times `weight`.
  float to_gradient(Matrix::RowXpr scores, std::int64_t target, float weight) const {
    check(target >= 0 && target < classes_, "a target is no class");
    const float score = scores[target];
    const SoftmaxSum sum = kernels().elementwise->softmax(scores.data(), classes_, 1, weight);
    scores[target] -= weight;
    return std::log(sum.sum) - (score - sum.largest);
  }

  std::int64_t classes_;
};

}  // namespace

std::unique_ptr<Module> make_softmax_cross_entropy(const SoftmaxCrossEntropyOperation& operation) {
  return std::make_unique<SoftmaxCrossEntropy>(operation);
}

}  // namespace dapple::nn
