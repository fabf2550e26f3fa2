// Sequences that are divided among context-parallel ranks.
#include <algorithm>
#include <utility>

#include "dapple/core/error.h"
#include "nn/matrix.h"
#include "nn/modules.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

/// Calls `copy` for each sample, rank and position of the rank, with the row of the position among
/// those of all samples and with its row where the samples of one rank follow those of another.
template <class Copy>
void for_each_position(std::int64_t samples, std::int64_t sequence, const GroupRank& rank,
                       const Copy& copy) {
  std::int64_t by_rank = 0;
  for (std::int64_t other = 0; other < rank.ranks; ++other) {
    const std::vector<std::int64_t> positions =
        positions_of({.rank = other, .ranks = rank.ranks}, sequence);
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      for (const std::int64_t position : positions) {
        copy(sample * sequence + position, by_rank++);
      }
    }
  }
}

/// Returns the values at the rank's positions of each sample, in [samples, sequence].
Tensor own_positions(const Tensor& whole, const GroupRank& rank) {
  const std::int64_t sequence = whole.shape[1];
  Tensor own = zeros({whole.samples(), sequence / rank.ranks});
  auto to = own.values.begin();
  for (std::int64_t sample = 0; sample < whole.samples(); ++sample) {
    for (const std::int64_t position : positions_of(rank, sequence)) {
      *to++ = whole.values[static_cast<std::size_t>(sample * sequence + position)];
    }
  }
  return own;
}

class OwnPositions : public WithoutParameters {
 public:
  explicit OwnPositions(const GroupRank& rank) : rank_(rank) {}
  Shape output_shape(const Shape& sample) const override {
    if (sample.size() != 1) refuse_shape("an input of tokens", sample);
    return {sample.front() / rank_.ranks};
  }
  Tensor forward(Parameters, Tensor input, const Tensor&, Stash&) const override {
    return own_positions(input, rank_);
  }
  /// Tokens have no gradient.
  Tensor input_gradient(Parameters, Tensor, Stash&) const override { return {}; }

 private:
  GroupRank rank_;
};

/// The mean over all positions is the mean of the ranks' means, as all have as many.
class ContextParallelLoss : public WithoutParameters {
 public:
  ContextParallelLoss(std::unique_ptr<Module> of_rank, const GroupRank& rank)
      : of_rank_(std::move(of_rank)), rank_(rank) {}

  Shape output_shape(const Shape& sample) const override { return of_rank_->output_shape(sample); }
  Tensor forward(Parameters parameters, Tensor input, const Tensor& targets,
                 Stash& stash) const override {
    Tensor losses =
        of_rank_->forward(parameters, std::move(input), own_positions(targets, rank_), stash);
    rank_.group->all_reduce(losses.values);
    array_of(losses) /= static_cast<float>(rank_.ranks);
    return losses;
  }
  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    array_of(output_gradient) /= static_cast<float>(rank_.ranks);
    return of_rank_->input_gradient(parameters, std::move(output_gradient), stash);
  }

 private:
  std::unique_ptr<Module> of_rank_;
  GroupRank rank_;
};

}  // namespace

std::vector<std::int64_t> positions_of(const GroupRank& rank, std::int64_t sequence) {
  const std::int64_t chunks = rank.ranks == 1 ? 1 : 2 * rank.ranks;
  check(sequence % chunks == 0, "context-parallel ranks share what they do not divide");
  const std::int64_t size = sequence / chunks;
  std::vector<std::int64_t> positions;
  const auto add = [&](std::int64_t chunk) {
    for (std::int64_t i = 0; i < size; ++i) positions.push_back(chunk * size + i);
  };
  add(rank.rank);
  if (chunks > 1) add(chunks - 1 - rank.rank);
  return positions;
}

Tensor gather_positions(const Tensor& own, const GroupRank& rank) {
  Shape shape = own.shape;
  shape[1] *= rank.ranks;
  Tensor whole = zeros(std::move(shape));
  std::vector<float> by_rank(whole.values.size());
  rank.group->all_gather(own.values, by_rank);
  const std::int64_t width = own.shape.back();
  for_each_position(whole.samples(), whole.shape[1], rank, [&](std::int64_t to, std::int64_t from) {
    std::copy_n(by_rank.begin() + from * width, width, whole.values.begin() + to * width);
  });
  return whole;
}

Tensor scatter_positions(const Tensor& whole, const GroupRank& rank) {
  Shape shape = whole.shape;
  shape[1] /= rank.ranks;
  Tensor own = zeros(std::move(shape));
  std::vector<float> by_rank(whole.values.size());
  const std::int64_t width = whole.shape.back();
  for_each_position(whole.samples(), whole.shape[1], rank, [&](std::int64_t from, std::int64_t to) {
    std::copy_n(whole.values.begin() + from * width, width, by_rank.begin() + to * width);
  });
  rank.group->reduce_scatter(by_rank, own.values);
  return own;
}

std::unique_ptr<Module> make_own_positions(const GroupRank& rank) {
  return std::make_unique<OwnPositions>(rank);
}

std::unique_ptr<Module> make_context_parallel_loss(std::unique_ptr<Module> of_rank,
                                                   const GroupRank& rank) {
  return std::make_unique<ContextParallelLoss>(std::move(of_rank), rank);
}

}  // namespace dapple::nn
