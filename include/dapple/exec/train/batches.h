// What a model is trained on. Sample k of iteration i is a function of the seed, i and k alone, so
// that every replica makes its own part of a batch and every way to place the layers trains on the
// same.
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
  nn::Tensor inputs;   // [samples, ...]: what the model's first layer takes
  nn::Tensor targets;  // [samples, ...]: a class for each row of what the loss takes
};

/// Shapes are those of one sample.
struct BatchShape {
  nn::Shape input;
  std::int64_t vocabulary = 0;  // of the tokens that are the input; 0: it is numbers
  nn::Shape targets;
  std::int64_t classes = 0;
};

/// O(1). Requires: the model was made of the operations.
BatchShape batch_shape(const std::vector<Operation>& operations,
                       const std::vector<nn::ModelLayer>& model);

/// May be asked from several threads at a time.
class Batches {
 public:
  virtual ~Batches() = default;

  /// What the first layer takes of samples [begin, end) of an iteration's global batch, and what
  /// the loss does. O(numbers).
  virtual nn::Tensor inputs(std::int64_t iteration, std::int64_t begin, std::int64_t end) const = 0;
  virtual nn::Tensor targets(std::int64_t iteration, std::int64_t begin,
                             std::int64_t end) const = 0;

  /// Both.
  Batch samples(std::int64_t iteration, std::int64_t begin, std::int64_t end) const {
    return {.inputs = inputs(iteration, begin, end), .targets = targets(iteration, begin, end)};
  }
};

/// Something that can be learned. Tokens: mostly, 7 times in 8, each follows from the one before by
/// one rule, else any; the targets are the next tokens. Numbers: normal noise around a pattern of
/// the sample's class.
std::unique_ptr<Batches> make_synthetic_batches(const BatchShape& shape, std::uint64_t seed);

/// Pieces of a text of tokens, each little-endian in two bytes, as trainers of GPT-2 keep them; the
/// targets are the next tokens. A piece may begin at any token. Throws Error(BadInput): an odd
/// size, fewer tokens than a sample and its last target need, a token that is not in the
/// vocabulary, a model that takes no tokens or does not predict each next one. Nothing of the text
/// is copied. O(size of the text).
std::unique_ptr<Batches> make_token_batches(std::shared_ptr<const io::FileView> text,
                                            const std::string& source_name, const BatchShape& shape,
                                            std::uint64_t seed);

}  // namespace dapple::exec
