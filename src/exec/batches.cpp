#include "dapple/exec/batches.h"

#include <fmt/format.h>

#include <utility>

#include "dapple/core/error.h"
#include "dapple/core/random.h"

namespace dapple {
namespace {

/// A batch without samples, with room for `count` of them.
Batch room_for(const BatchShape& shape, std::int64_t count) {
  const auto with_room = [count](const nn::Shape& sample) {
    nn::Tensor tensor{sample, {}};
    tensor.shape.insert(tensor.shape.begin(), count);
    tensor.values.reserve(static_cast<std::size_t>(nn::count_of(tensor.shape)));
    return tensor;
  };
  return {with_room(shape.input), with_room(shape.targets)};
}

RandomStream stream_of(std::uint64_t seed, std::int64_t iteration, std::int64_t sample) {
  return RandomStream(seed)
      .of(static_cast<std::uint64_t>(iteration))
      .of(static_cast<std::uint64_t>(sample));
}

/// Tokens, and next tokens as targets.
class SyntheticTokens : public Batches {
 public:
  SyntheticTokens(BatchShape shape, std::uint64_t seed) : shape_(std::move(shape)), seed_(seed) {}

  Batch samples(std::int64_t iteration, std::int64_t begin, std::int64_t end) const override {
    Batch batch = room_for(shape_, end - begin);
    for (std::int64_t sample = begin; sample < end; ++sample) {
      add_sample(stream_of(seed_, iteration, sample), batch);
    }
    return batch;
  }

 private:
  void add_sample(const RandomStream& stream, Batch& batch) const {
    const std::int64_t length = nn::count_of(shape_.input);
    const std::int64_t targets = nn::count_of(shape_.targets);
    std::int64_t token = stream.below(shape_.vocabulary, 0);
    for (std::int64_t position = 0; position < length; ++position) {
      batch.inputs.values.push_back(static_cast<float>(token));
      token = next(token, stream, static_cast<std::uint64_t>(position));
      if (position < targets) {
        batch.targets.values.push_back(static_cast<float>(token % shape_.classes));
      }
    }
  }

  std::int64_t next(std::int64_t token, const RandomStream& stream, std::uint64_t position) const {
    constexpr std::int64_t kOftenness = 8;
    if (stream.below(kOftenness, 2 * position + 1) == 0) {
      return stream.below(shape_.vocabulary, 2 * position + 2);
    }
    return (5 * token + 7) % shape_.vocabulary;
  }

  BatchShape shape_;
  std::uint64_t seed_;
};

class SyntheticNumbers : public Batches {
 public:
  SyntheticNumbers(BatchShape shape, std::uint64_t seed)
      : shape_(std::move(shape)), seed_(seed), patterns_(RandomStream(seed).of("patterns")) {}

  Batch samples(std::int64_t iteration, std::int64_t begin, std::int64_t end) const override {
    Batch batch = room_for(shape_, end - begin);
    for (std::int64_t sample = begin; sample < end; ++sample) {
      add_sample(stream_of(seed_, iteration, sample), batch);
    }
    return batch;
  }

 private:
  void add_sample(const RandomStream& stream, Batch& batch) const {
    const RandomStream labels = stream.of("labels");
    std::int64_t label = 0;
    for (std::int64_t i = 0; i < nn::count_of(shape_.targets); ++i) {
      label = labels.below(shape_.classes, static_cast<std::uint64_t>(i));
      batch.targets.values.push_back(static_cast<float>(label));
    }
    const RandomStream pattern = patterns_.of(static_cast<std::uint64_t>(label));
    const auto count = static_cast<std::uint64_t>(nn::count_of(shape_.input));
    for (std::uint64_t i = 0; i < count; ++i) {
      const float noise = stream.normal_pair(i).first;
      batch.inputs.values.push_back(noise + pattern.normal_pair(i).first);
    }
  }

  BatchShape shape_;
  std::uint64_t seed_;
  RandomStream patterns_;  // what the numbers of each class are beside the noise
};

class TokensOfText : public Batches {
 public:
  TokensOfText(std::vector<std::uint16_t> tokens, BatchShape shape, std::uint64_t seed)
      : tokens_(std::move(tokens)), shape_(std::move(shape)), seed_(seed) {}

  Batch samples(std::int64_t iteration, std::int64_t begin, std::int64_t end) const override {
    Batch batch = room_for(shape_, end - begin);
    const std::int64_t length = shape_.input.front();
    const std::int64_t pieces = static_cast<std::int64_t>(tokens_.size()) - length;
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const auto first = tokens_.begin() + stream_of(seed_, iteration, sample).below(pieces, 0);
      batch.inputs.values.insert(batch.inputs.values.end(), first, first + length);
      batch.targets.values.insert(batch.targets.values.end(), first + 1, first + 1 + length);
    }
    return batch;
  }

 private:
  std::vector<std::uint16_t> tokens_;
  BatchShape shape_;
  std::uint64_t seed_;
};

std::vector<std::uint16_t> tokens_of(std::string_view text) {
  std::vector<std::uint16_t> tokens(text.size() / 2);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto low = static_cast<unsigned char>(text[2 * i]);
    const auto high = static_cast<unsigned char>(text[2 * i + 1]);
    tokens[i] = static_cast<std::uint16_t>(low | (high << 8U));
  }
  return tokens;
}

}  // namespace

BatchShape batch_shape(const std::vector<Operation>& operations,
                       const std::vector<nn::ModelLayer>& model) {
  BatchShape shape{.input = model.front().input, .targets = model.back().input};
  shape.classes = shape.targets.back();
  shape.targets.pop_back();
  if (const auto* embedding = std::get_if<EmbeddingOperation>(&operations.front())) {
    shape.vocabulary = embedding->vocabulary;
  }
  return shape;
}

std::unique_ptr<Batches> make_synthetic_batches(const BatchShape& shape, std::uint64_t seed) {
  if (shape.vocabulary > 0) return std::make_unique<SyntheticTokens>(shape, seed);
  return std::make_unique<SyntheticNumbers>(shape, seed);
}

std::unique_ptr<Batches> make_token_batches(std::string_view text, const std::string& source_name,
                                            const BatchShape& shape, std::uint64_t seed) {
  const auto refuse = [&source_name](std::string place, std::string message) {
    throw Error{ErrorKind::BadInput, source_name, {{std::move(place), std::move(message)}}};
  };
  if (shape.vocabulary == 0 || shape.targets != shape.input || shape.classes < shape.vocabulary) {
    refuse("", "expected a model that takes tokens and predicts the next one at each position");
  }
  if (text.size() % 2 != 0) {
    refuse("", fmt::format("expected two bytes for each token, got {} bytes", text.size()));
  }
  std::vector<std::uint16_t> tokens = tokens_of(text);
  const std::int64_t least = shape.input.front() + 1;
  if (static_cast<std::int64_t>(tokens.size()) < least) {
    refuse("", fmt::format("expected at least {} tokens, a sample and its last target, got {}",
                           least, tokens.size()));
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= shape.vocabulary) {
      refuse(fmt::format("token {}", i),
             fmt::format("expected a number below {}, the size of the vocabulary, got {}",
                         shape.vocabulary, tokens[i]));
    }
  }
  return std::make_unique<TokensOfText>(std::move(tokens), shape, seed);
}

}  // namespace dapple
