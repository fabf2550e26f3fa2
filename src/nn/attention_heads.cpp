#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

using Block = Eigen::Map<RowMajor, 0, Eigen::OuterStride<>>;
using ConstBlock = Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>>;

/// Computes softmax(Q K^T / sqrt(width)) V for each head of each sample.
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
        add_product(plain(part_of(input, sample, head, kQuery)),
                    transposed(part_of(input, sample, head, kKey)), share);
        to_shares(share);
        add_product(plain(share), plain(part_of(input, sample, head, kValue)),
                    part_of(output, sample, head));
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
        scores.setZero();
        add_product(plain(slope), transposed(part_of(input, sample, head, kValue)), scores);
        to_score_gradients(share, scores);
        add_product(plain(scores), plain(part_of(input, sample, head, kKey)),
                    part_of(gradient, sample, head, kQuery));
        add_product(transposed(scores), plain(part_of(input, sample, head, kQuery)),
                    part_of(gradient, sample, head, kKey));
        add_product(transposed(share), plain(slope), part_of(gradient, sample, head, kValue));
      }
    }
    stash.tensors.clear();
    return gradient;
  }

 private:
  static constexpr std::int64_t kQuery = 0;
  static constexpr std::int64_t kKey = 1;
  static constexpr std::int64_t kValue = 2;

  /// Returns the columns of a head in the queries, keys or values of a sample.
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

  /// Returns the attention weights of a head: [query position, key position].
  Matrix shares_of(Tensor& shares, std::int64_t sample, std::int64_t head) const {
    const std::int64_t sequence = shares.shape[2];
    const std::int64_t number = sample * operation_.heads + head;
    return {shares.values.data() + number * sequence * sequence, sequence, sequence};
  }

  void to_shares(Matrix scores) const {
    for (Eigen::Index row = 0; row < scores.rows(); ++row) {
      const Eigen::Index seen = operation_.causal ? row + 1 : scores.cols();
      kernels().elementwise->softmax(scores.row(row).data(), seen, scale_, 1);
      scores.row(row).tail(scores.cols() - seen).setZero();
    }
  }

  /// Replaces the gradients of the attention weights by those of the unscaled scores. Positions
  /// hidden by the causal mask have gradient zero.
  void to_score_gradients(const Matrix& shares, RowMajor& gradients) const {
    for (Eigen::Index row = 0; row < shares.rows(); ++row) {
      const Eigen::Index seen = operation_.causal ? row + 1 : shares.cols();
      kernels().elementwise->softmax_gradient(shares.row(row).data(), gradients.row(row).data(),
                                              seen, scale_);
      gradients.row(row).tail(shares.cols() - seen).setZero();
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
