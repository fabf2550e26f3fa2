#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "nn/matrix.h"
#include "nn/modules.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

using Block = Eigen::Map<RowMajor, 0, Eigen::OuterStride<>>;
using ConstBlock = Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>>;

/// Computes softmax(Q K^T / sqrt(width)) V for each head of queries of each sample. A head of keys
/// and values serves as many consecutive heads of queries as there are for each.
/// Sources: Vaswani et al. 2017, equation 1; Ainslie et al. 2023, "GQA".
class AttentionHeads : public WithoutParameters {
 public:
  AttentionHeads(const AttentionOperation& operation, const GroupRank& rank)
      : rank_(rank),
        heads_(operation.heads),
        kv_heads_(kv_heads_of(operation)),
        width_(head_width_of(operation)),
        is_causal_(operation.causal),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(width_)))) {}

  Shape output_shape(const Shape& sample) const override {
    const std::int64_t columns = (heads_ + 2 * kv_heads_) * width_;
    if (sample.size() != 2 || sample[1] != columns) {
      refuse_shape(fmt::format("an input of [sequence, {}]", columns), sample);
    }
    return {sample[0], heads_ * width_};
  }

  Tensor forward(Parameters, Tensor input, const Tensor&, Stash& stash) const override {
    const std::int64_t sequence = input.shape[1];
    Tensor output = zeros({input.samples(), sequence, heads_ * width_});
    Tensor shares = zeros({input.samples(), heads_, sequence, sequence * rank_.ranks});
    const Tensor gathered = gathered_keys(input);
    const Tensor& keys = is_alone() ? input : gathered;
    const std::vector<std::int64_t> positions = positions_of(rank_, shares.shape[3]);
    for (std::int64_t sample = 0; sample < input.samples(); ++sample) {
      for (std::int64_t head = 0; head < heads_; ++head) {
        Matrix share = shares_of(shares, sample, head);
        add_product(plain(part_of(input, sample, query(head))),
                    transposed(part_of(keys, sample, key(head))), share);
        to_shares(share, positions);
        add_product(plain(share), plain(part_of(keys, sample, value(head))),
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
    const Tensor gathered = gathered_keys(input);
    const Tensor& keys = is_alone() ? input : gathered;
    Tensor of_gathered = zeros(gathered.shape.empty() ? Shape{0} : gathered.shape);
    Tensor& key_gradient = is_alone() ? gradient : of_gathered;
    const std::vector<std::int64_t> positions = positions_of(rank_, sequence * rank_.ranks);
    RowMajor scores(sequence, sequence * rank_.ranks);
    for (std::int64_t sample = 0; sample < input.samples(); ++sample) {
      for (std::int64_t head = 0; head < heads_; ++head) {
        const Matrix share = shares_of(stash.tensors[1], sample, head);
        const Block slope = part_of(output_gradient, sample, head);
        scores.setZero();
        add_product(plain(slope), transposed(part_of(keys, sample, value(head))), scores);
        to_score_gradients(share, positions, scores);
        add_product(plain(scores), plain(part_of(keys, sample, key(head))),
                    part_of(gradient, sample, query(head)));
        add_product(transposed(scores), plain(part_of(input, sample, query(head))),
                    part_of(key_gradient, sample, key(head)));
        add_product(transposed(share), plain(slope), part_of(key_gradient, sample, value(head)));
      }
    }
    stash.tensors.clear();
    if (!is_alone()) put_key_gradient(scatter_positions(of_gathered, rank_), gradient);
    return gradient;
  }

 private:
  bool is_alone() const { return rank_.ranks == 1; }

  /// Returns the keys and values of all context-parallel ranks; nothing for a rank that is alone,
  /// which has them beside the queries.
  Tensor gathered_keys(const Tensor& input) const {
    if (is_alone()) return {};
    const std::int64_t columns = input.shape[2];
    const std::int64_t of_keys = 2 * kv_heads_ * width_;
    Tensor own = zeros({input.shape[0], input.shape[1], of_keys});
    rows_of(own, of_keys) = rows_of(input, columns).rightCols(of_keys);
    return gather_positions(own, rank_);
  }

  void put_key_gradient(const Tensor& own, Tensor& gradient) const {
    const std::int64_t of_keys = own.shape[2];
    rows_of(gradient, gradient.shape[2]).rightCols(of_keys) = rows_of(own, of_keys);
  }

  // Where queries, keys and values of a head of queries are, counted in heads. Gathered keys have
  // no queries before them.
  static std::int64_t query(std::int64_t head) { return head; }
  std::int64_t key(std::int64_t head) const {
    return (is_alone() ? heads_ : 0) + head * kv_heads_ / heads_;
  }
  std::int64_t value(std::int64_t head) const { return key(head) + kv_heads_; }

  /// Returns the columns of the head at `place` of a sample.
  Block part_of(Tensor& tensor, std::int64_t sample, std::int64_t place) const {
    const std::int64_t sequence = tensor.shape[1];
    const std::int64_t columns = tensor.shape[2];
    float* first = tensor.values.data() + sample * sequence * columns + place * width_;
    return {first, sequence, width_, Eigen::OuterStride<>(columns)};
  }
  ConstBlock part_of(const Tensor& tensor, std::int64_t sample, std::int64_t place) const {
    const std::int64_t sequence = tensor.shape[1];
    const std::int64_t columns = tensor.shape[2];
    const float* first = tensor.values.data() + sample * sequence * columns + place * width_;
    return {first, sequence, width_, Eigen::OuterStride<>(columns)};
  }

  /// Returns the attention weights of a head: [query position, key position].
  Matrix shares_of(Tensor& shares, std::int64_t sample, std::int64_t head) const {
    const std::int64_t queries = shares.shape[2];
    const std::int64_t keys = shares.shape[3];
    const std::int64_t number = sample * heads_ + head;
    return {shares.values.data() + number * queries * keys, queries, keys};
  }

  /// Returns how many keys the query in a row sees, given the positions of the queries.
  Eigen::Index seen_by(Eigen::Index row, const std::vector<std::int64_t>& positions,
                       Eigen::Index keys) const {
    return is_causal_ ? positions[static_cast<std::size_t>(row)] + 1 : keys;
  }

  void to_shares(Matrix scores, const std::vector<std::int64_t>& positions) const {
    for (Eigen::Index row = 0; row < scores.rows(); ++row) {
      const Eigen::Index seen = seen_by(row, positions, scores.cols());
      kernels().elementwise->softmax(scores.row(row).data(), seen, scale_, 1);
      scores.row(row).tail(scores.cols() - seen).setZero();
    }
  }

  /// Replaces the gradients of the attention weights by those of the unscaled scores. Positions
  /// hidden by the causal mask have gradient zero.
  void to_score_gradients(const Matrix& shares, const std::vector<std::int64_t>& positions,
                          RowMajor& gradients) const {
    for (Eigen::Index row = 0; row < shares.rows(); ++row) {
      const Eigen::Index seen = seen_by(row, positions, shares.cols());
      kernels().elementwise->softmax_gradient(shares.row(row).data(), gradients.row(row).data(),
                                              seen, scale_);
      gradients.row(row).tail(shares.cols() - seen).setZero();
    }
  }

  GroupRank rank_;
  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::int64_t width_;
  bool is_causal_;
  float scale_;
};

}  // namespace

std::unique_ptr<Module> make_attention_heads(const AttentionOperation& operation,
                                             const GroupRank& rank) {
  return std::make_unique<AttentionHeads>(operation, rank);
}

}  // namespace dapple::nn
