// Training data. Sample k of iteration i is a function of the seed, i and k alone, so every replica
// makes its own part of a batch, and all placements of the layers train on the same data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dapple/io/files/file_view.h"
#include "dapple/nn/model.h"
#include "dapple/nn/tensor.h"
#include "dapple/profile/operation.h"

namespace dapple::exec {

struct Batch {
  /// The input of the model's first layer, of shape [samples, ...].
  nn::Tensor inputs;
  /// A class for each row of the loss layer's input, of shape [samples, ...].
  nn::Tensor targets;
};

/// The shapes of one sample's input and targets.
struct BatchShape {
  nn::Shape input;
  /// The size of the input tokens' vocabulary; 0 if the input is real numbers.
  std::int64_t vocabulary = 0;
  nn::Shape targets;
  std::int64_t classes = 0;
};

/// Returns the shapes of the samples that the model takes. O(1). Requires: the model was made from
/// the operations.
BatchShape batch_shape(const std::vector<Operation>& operations,
                       const std::vector<nn::ModelLayer>& model);

/// A source of samples. Its functions may be called from several threads at the same time.
class Batches {
 public:
  virtual ~Batches() = default;

  /// Returns the first layer's inputs, or the loss layer's targets, for samples [begin, end) of an
  /// iteration's global batch. O(numbers).
  virtual nn::Tensor inputs(std::int64_t iteration, std::int64_t begin, std::int64_t end) const = 0;
  virtual nn::Tensor targets(std::int64_t iteration, std::int64_t begin,
                             std::int64_t end) const = 0;

  /// Returns both inputs and targets.
  Batch samples(std::int64_t iteration, std::int64_t begin, std::int64_t end) const {
    return {.inputs = inputs(iteration, begin, end), .targets = targets(iteration, begin, end)};
  }
};

/// Makes synthetic samples that can be learned. Tokens: with probability 7/8 each token follows
/// from the one before by a fixed rule, otherwise it is drawn uniformly; the targets are the next
/// tokens. Numbers: normal noise around a pattern of the sample's class.
std::unique_ptr<Batches> make_synthetic_batches(const BatchShape& shape, std::uint64_t seed);

/// Makes samples that are pieces of a tokenized text, each token little-endian in two bytes, the
/// usual format of GPT-2 training; the targets are the next tokens. A piece may begin at any token.
/// Throws Error(BadInput) for an odd size, fewer tokens than a sample and its last target need, a
/// token that is not in the vocabulary, or a model that does not take tokens or does not predict
/// the next token at each position. The text is not copied. O(size of the text).
std::unique_ptr<Batches> make_token_batches(std::shared_ptr<const io::FileView> text,
                                            const std::string& source_name, const BatchShape& shape,
                                            std::uint64_t seed);

}  // namespace dapple::exec
