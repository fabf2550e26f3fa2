// Embeddings and losses of which each rank has an equal part of the vocabulary.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"
#include "nn/mean_loss.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

std::int64_t size_of(const ParameterPart::Range& range) {
  return range.end - range.begin;
}

ParameterPart::Range padded_part(std::int64_t count, const TensorRank& rank) {
  return part_of_rank(divide_up(count, rank.ranks) * rank.ranks, rank);
}

/// A token of another rank's part has a vector of zeros here; the sum over the ranks is the whole
/// layer's output.
class VocabularyParallelEmbedding : public Module {
 public:
  VocabularyParallelEmbedding(const EmbeddingOperation& whole, const TensorRank& rank)
      : operation_(whole), rank_(rank), own_(padded_part(whole.vocabulary, rank)) {
    EmbeddingOperation tokens = whole;
    tokens.positions = false;
    parameters_ = make_embedding(tokens)->parameters();
    ParameterSpec& table = parameters_.front();
    table.part = {.whole = table.shape, .dimension = 0, .ranges = {own_}};
    table.shape[0] = size_of(own_);
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    Shape shape =
        make_embedding({operation_.vocabulary, operation_.sequence, operation_.hidden, false})
            ->output_shape(sample);
    if (rank_.is_sequence_parallel) shape.front() /= rank_.ranks;
    return shape;
  }

  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    const ConstMatrix tokens = rows_of(parameters[0], operation_.hidden);
    Tensor output = zeros({input.samples(), operation_.sequence, operation_.hidden});
    Matrix rows = rows_of(output, operation_.hidden);
    for_each_own_token(
        input, [&](Eigen::Index row, std::int64_t token) { rows.row(row) = tokens.row(token); });
    stash.tensors.push_back(std::move(input));
    if (rank_.is_sequence_parallel) return scatter_sequences(std::move(output), rank_);
    rank_.group->all_reduce(output.values);
    return output;
  }

  Tensor input_gradient(Parameters, Tensor output_gradient, Stash& stash) const override {
    stash.tensors.push_back(rank_.is_sequence_parallel ? gather_sequences(output_gradient, rank_)
                                                       : std::move(output_gradient));
    return {};
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    const ConstMatrix gradient = rows_of(std::as_const(stash.tensors[1]), operation_.hidden);
    Matrix tokens = rows_of(sums[0], operation_.hidden);
    for_each_own_token(stash.tensors[0], [&](Eigen::Index row, std::int64_t token) {
      tokens.row(token) += gradient.row(row);
    });
    stash.tensors.clear();
  }

 private:
  /// Calls `work` with the row of each token of the rank's part, and with the token's number there.
  template <class Work>
  void for_each_own_token(const Tensor& input, Work work) const {
    for (std::size_t row = 0; row < input.values.size(); ++row) {
      const auto token = static_cast<std::int64_t>(input.values[row]);
      check(token >= 0 && token < operation_.vocabulary, "a token is not in the vocabulary");
      if (token < own_.begin || token >= own_.end) continue;
      work(static_cast<Eigen::Index>(row), token - own_.begin);
    }
  }

  EmbeddingOperation operation_;
  TensorRank rank_;
  ParameterPart::Range own_;
  std::vector<ParameterSpec> parameters_;
};

/// The largest score of a rank's part of a row, and the sum of exp(score - largest).
struct PartialSum {
  float largest = -std::numeric_limits<float>::infinity();
  float sum = 0;
};

/// The gradient is (softmax - one-hot target) / positions.
class VocabularyParallelCrossEntropy : public MeanLoss {
 public:
  VocabularyParallelCrossEntropy(const SoftmaxCrossEntropyOperation& whole, const TensorRank& rank)
      : MeanLoss(size_of(padded_part(whole.classes, rank))),
        classes_(whole.classes),
        rank_(rank),
        own_(padded_part(whole.classes, rank)),
        used_(std::clamp<std::int64_t>(classes_ - own_.begin, 0, width())) {}

 private:
  std::vector<float> to_gradients(Matrix& rows, const Tensor& targets,
                                  float weight) const override {
    std::vector<float> scores = own_target_scores(rows, targets);
    rank_.group->all_reduce(scores);
    const std::vector<PartialSum> sums = sums_of_all_ranks(rows, weight);
    std::vector<float> losses(scores.size());
    for (std::size_t row = 0; row < losses.size(); ++row) {
      const auto at = static_cast<Eigen::Index>(row);
      const PartialSum all = scale_to_all(rows.row(at), row, sums);
      losses[row] = std::log(all.sum) - (scores[row] - all.largest);
      if (const auto own = own_class(targets, row)) rows(at, *own) -= weight;
    }
    return losses;
  }

  /// Returns the number of a row's target in the rank's part, if it is there.
  std::optional<std::int64_t> own_class(const Tensor& targets, std::size_t row) const {
    const auto target = static_cast<std::int64_t>(targets.values[row]);
    check(target >= 0 && target < classes_, "a target is no class");
    if (target < own_.begin || target >= own_.end) return std::nullopt;
    return target - own_.begin;
  }

  std::vector<float> own_target_scores(const Matrix& rows, const Tensor& targets) const {
    std::vector<float> scores(targets.values.size());
    for (std::size_t row = 0; row < scores.size(); ++row) {
      if (const auto own = own_class(targets, row)) {
        scores[row] = rows(static_cast<Eigen::Index>(row), *own);
      }
    }
    return scores;
  }

  /// Replaces each row by its softmax within the rank's part, times `weight`, and returns the sums
  /// of all rows on one rank after those on another.
  std::vector<PartialSum> sums_of_all_ranks(Matrix& rows, float weight) const {
    const auto count = static_cast<std::size_t>(rows.rows());
    std::vector<PartialSum> own(count);
    for (std::size_t row = 0; row < count; ++row) {
      float* scores = rows.row(static_cast<Eigen::Index>(row)).data();
      std::fill(scores + used_, scores + width(), 0.0F);
      if (used_ == 0) continue;
      const SoftmaxSum sum = kernels().elementwise->softmax(scores, used_, 1, weight);
      own[row] = {sum.largest, sum.sum};
    }
    std::vector<PartialSum> all(count * static_cast<std::size_t>(rank_.ranks));
    static_assert(sizeof(PartialSum) == 2 * sizeof(float));
    rank_.group->all_gather({&own.front().largest, 2 * own.size()},
                            {&all.front().largest, 2 * all.size()});
    return all;
  }

  /// Makes a row's softmax within the rank's part that of all classes, and returns the sum of all.
  PartialSum scale_to_all(Matrix::RowXpr row, std::size_t number,
                          const std::vector<PartialSum>& sums) const {
    const std::size_t count = sums.size() / static_cast<std::size_t>(rank_.ranks);
    PartialSum all;
    for (std::size_t at = number; at < sums.size(); at += count) {
      all.largest = std::max(all.largest, sums[at].largest);
    }
    const auto scaled = [&](const PartialSum& some) {
      return some.sum * std::exp(some.largest - all.largest);
    };
    for (std::size_t at = number; at < sums.size(); at += count) all.sum += scaled(sums[at]);
    row *= scaled(sums[number + static_cast<std::size_t>(rank_.rank) * count]) / all.sum;
    return all;
  }

  std::int64_t classes_;
  TensorRank rank_;
  ParameterPart::Range own_;
  std::int64_t used_;  // without padding
};

}  // namespace

std::unique_ptr<Module> make_vocabulary_parallel_embedding(const EmbeddingOperation& whole,
                                                           const TensorRank& rank) {
  return std::make_unique<VocabularyParallelEmbedding>(whole, rank);
}

std::unique_ptr<Module> make_vocabulary_parallel_cross_entropy(
    const SoftmaxCrossEntropyOperation& whole, const TensorRank& rank) {
  return std::make_unique<VocabularyParallelCrossEntropy>(whole, rank);
}

}  // namespace dapple::nn
