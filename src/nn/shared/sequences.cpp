#include <algorithm>
#include <utility>

#include "dapple/core/error.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

/// The layout of a tensor of whole sequences as parts of ranks.
struct Parts {
  Parts(const Tensor& whole, const TensorRank& rank)
      : samples(whole.shape[0]),
        ranks(rank.ranks),
        part(static_cast<std::int64_t>(whole.values.size()) / (samples * ranks)) {}

  /// Calls `copy` with the place in a tensor of whole sequences and with the place in the tensor
  /// in which the parts of one rank follow those of another, for each part.
  template <class Copy>
  void for_each(Copy copy) const {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      for (std::int64_t sample = 0; sample < samples; ++sample) {
        copy((sample * ranks + rank) * part, (rank * samples + sample) * part);
      }
    }
  }

  std::int64_t samples;
  std::int64_t ranks;
  /// The values of a rank's part of one sequence.
  std::int64_t part;
};

}  // namespace

ParameterPart::Range part_of_rank(std::int64_t count, const TensorRank& rank) {
  check(count % rank.ranks == 0, "ranks share what they do not divide");
  const std::int64_t each = count / rank.ranks;
  return {rank.rank * each, (rank.rank + 1) * each};
}

Tensor gather_sequences(const Tensor& own, const TensorRank& rank) {
  Shape shape = own.shape;
  shape[1] *= rank.ranks;
  Tensor whole = zeros(std::move(shape));
  const Parts parts(whole, rank);
  if (parts.samples == 1) {
    rank.group->all_gather(own.values, whole.values);
    return whole;
  }
  std::vector<float> by_rank(whole.values.size());
  rank.group->all_gather(own.values, by_rank);
  parts.for_each([&](std::int64_t place, std::int64_t at) {
    std::copy_n(by_rank.begin() + at, parts.part, whole.values.begin() + place);
  });
  return whole;
}

Tensor scatter_sequences(Tensor whole, const TensorRank& rank) {
  Shape shape = whole.shape;
  shape[1] /= rank.ranks;
  Tensor own = zeros(std::move(shape));
  const Parts parts(whole, rank);
  if (parts.samples > 1) {
    std::vector<float> by_rank(whole.values.size());
    parts.for_each([&](std::int64_t place, std::int64_t at) {
      std::copy_n(whole.values.begin() + place, parts.part, by_rank.begin() + at);
    });
    whole.values = std::move(by_rank);
  }
  rank.group->reduce_scatter(whole.values, own.values);
  return own;
}

}  // namespace dapple::nn
