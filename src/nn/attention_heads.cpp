#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "matrix.h"
#include "modules.h"

namespace dapple::nn {
namespace {

using Block = Eigen::Map<RowMajor, 0, Eigen::OuterStride<>>;
using ConstBlock = Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>>;

/// One sample's one head: softmax(Q K^T / sqrt(width)) V.
/// Source: Vaswani et al. 2017, equation 1.
class AttentionHeads : public WithoutParameters {
 public:
  explicit AttentionHeads(const AttentionOperation& operation) : operation_(operation) {
    width_ = operation.hidden / operation.heads;
    scale_ = static_cast<float>(1 / std::sqrt(static_cast<double>(width_)));
  }

  Shape output_shape(const Shape& sample) const override {
    if (sample.size() != 2 || sample[1] != 3 * operation_.hidden) {
      refuse_shape(fmt::format("an input of [sequence, {}]", 3 * operation_.hidden), sample);
    }
    return {sample[0], operation_.hidden};
  }

  Tensor forward(Parameters, Tensor input, const Tensor&, Stash& stash) const override {
    const std::int64_t sequence = input.shape[1];
    Tensor output = zeros({input.samples(), sequence, operation_.hidden});
    Tensor shares = zeros({input.samples(), operation_.heads, sequence, sequence});
    for (std::int64_t sample = 0; sample < input.samples(); ++sample) {
      for (std::int64_t head = 0; head < operation_.heads; ++head) {
        Matrix share = shares_of(shares, sample, head);
        share.noalias() +=
            part_of(input, sample, head, kQuery) * part_of(input, sample, head, kKey).transpose();
        to_shares(share);
        part_of(output, sample, head).noalias() += share * part_of(input, sample, head, kValue);
      }
    }
    stash.tensors.push_back(std::move(input));
    stash.tensors.push_back(std::move(shares));
    return output;
  }

  Tensor input_gradient(Parameters, Tensor output_gradient, Stash& stash) const override {
    const Tensor& input = stash.tensors[0];
    const std::int64_t sequence = input.shape[1];
    Tensor gradient = zeros(input.shape);
    RowMajor scores(sequence, sequence);
    for (std::int64_t sample = 0; sample < input.samples(); ++sample) {
      for (std::int64_t head = 0; head < operation_.heads; ++head) {
        const Matrix share = shares_of(stash.tensors[1], sample, head);
        const Block slope = part_of(output_gradient, sample, head);
        scores.noalias() = slope * part_of(input, sample, head, kValue).transpose();
        to_score_gradients(share, scores);
        part_of(gradient, sample, head, kQuery).noalias() +=
            scores * part_of(input, sample, head, kKey);
        part_of(gradient, sample, head, kKey).noalias() +=
            scores.transpose() * part_of(input, sample, head, kQuery);
        part_of(gradient, sample, head, kValue).noalias() += share.transpose() * slope;
      }
    }
    stash.tensors.clear();
    return gradient;
  }

 private:
  static constexpr std::int64_t kQuery = 0;
  static constexpr std::int64_t kKey = 1;
  static constexpr std::int64_t kValue = 2;

  /// The columns of a head in queries, keys or values.
  Block part_of(Tensor& tensor, std::int64_t sample, std::int64_t head,
                std::int64_t which = 0) const {
    const std::int64_t sequence = tensor.shape[1];
    const std::int64_t columns = tensor.shape[2];
    float* first = tensor.values.data() + sample * sequence * columns + which * operation_.hidden +
                   head * width_;
    return {first, sequence, width_, Eigen::OuterStride<>(columns)};
  }
  ConstBlock part_of(const Tensor& tensor, std::int64_t sample, std::int64_t head,
                     std::int64_t which) const {
    const std::int64_t sequence = tensor.shape[1];
    const std::int64_t columns = tensor.shape[2];
    const float* first = tensor.values.data() + sample * sequence * columns +
                         which * operation_.hidden + head * width_;
    return {first, sequence, width_, Eigen::OuterStride<>(columns)};
  }

  /// How much each position of a head takes from each.
  Matrix shares_of(Tensor& shares, std::int64_t sample, std::int64_t head) const {
    const std::int64_t sequence = shares.shape[2];
    const std::int64_t number = sample * operation_.heads + head;
    return {shares.values.data() + number * sequence * sequence, sequence, sequence};
  }

  void to_shares(Matrix scores) const {
    for (Eigen::Index row = 0; row < scores.rows(); ++row) {
      const Eigen::Index seen = operation_.causal ? row + 1 : scores.cols();
      auto values = scores.row(row).head(seen).array();
      const float largest = values.maxCoeff();
      values = (scale_ * (values - largest)).exp();
      values *= 1 / values.sum();
      scores.row(row).tail(scores.cols() - seen).setZero();
    }
  }

  /// From the gradients of the shares to those of the scores, scaled as the scores are. Shares that
  /// are zero, as those of what is not seen, give zero.
  void to_score_gradients(const Matrix& shares, RowMajor& gradients) const {
    for (Eigen::Index row = 0; row < shares.rows(); ++row) {
      const auto share = shares.row(row).array();
      auto slope = gradients.row(row).array();
      const float mean = (share * slope).sum();
      slope = scale_ * share * (slope - mean);
    }
  }

  AttentionOperation operation_;
  std::int64_t width_ = 0;
  float scale_ = 1;
};

}  // namespace

std::unique_ptr<Module> make_attention_heads(const AttentionOperation& operation) {
  return std::make_unique<AttentionHeads>(operation);
}

}  // namespace dapple::nn
