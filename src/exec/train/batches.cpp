#include "dapple/exec/train/batches.h"

#include <fmt/format.h>

#include <string_view>
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

/// Every sample from a random stream of its own.
class SampleBySample : public Batches {
 public:
  SampleBySample(BatchShape shape, std::uint64_t seed) : shape_(std::move(shape)), seed_(seed) {}

  Batch samples(std::int64_t iteration, std::int64_t begin, std::int64_t end) const override {
    Batch batch = room_for(shape_, end - begin);
    const RandomStream all = RandomStream(seed_).of(static_cast<std::uint64_t>(iteration));
    for (std::int64_t sample = begin; sample < end; ++sample) {
      add_sample(all.of(static_cast<std::uint64_t>(sample)), batch);
    }
    return batch;
  }

 protected:
  const BatchShape& shape() const { return shape_; }

 private:
  virtual void add_sample(const RandomStream& stream, Batch& batch) const = 0;

  BatchShape shape_;
  std::uint64_t seed_;
};

/// Tokens, and next tokens as targets.
class SyntheticTokens : public SampleBySample {
 public:
  using SampleBySample::SampleBySample;

 private:
  void add_sample(const RandomStream& stream, Batch& batch) const override {
    const std::int64_t length = nn::count_of(shape().input);
    const std::int64_t targets = nn::count_of(shape().targets);
    std::int64_t token = stream.below(shape().vocabulary, 0);
    for (std::int64_t position = 0; position < length; ++position) {
      batch.inputs.values.push_back(static_cast<float>(token));
      token = next(token, stream, static_cast<std::uint64_t>(position));
      if (position < targets) {
        batch.targets.values.push_back(static_cast<float>(token % shape().classes));
      }
    }
  }

  std::int64_t next(std::int64_t token, const RandomStream& stream, std::uint64_t position) const {
    constexpr std::int64_t kOftenness = 8;
    if (stream.below(kOftenness, 2 * position + 1) == 0) {
      return stream.below(shape().vocabulary, 2 * position + 2);
    }
    return (5 * token + 7) % shape().vocabulary;
  }
};

class SyntheticNumbers : public SampleBySample {
 public:
  SyntheticNumbers(BatchShape shape, std::uint64_t seed)
      : SampleBySample(std::move(shape), seed), patterns_(RandomStream(seed).of("patterns")) {}

 private:
  void add_sample(const RandomStream& stream, Batch& batch) const override {
    const RandomStream labels = stream.of("labels");
    std::int64_t label = 0;
    for (std::int64_t i = 0; i < nn::count_of(shape().targets); ++i) {
      label = labels.below(shape().classes, static_cast<std::uint64_t>(i));
      batch.targets.values.push_back(static_cast<float>(label));
    }
    const RandomStream pattern = patterns_.of(static_cast<std::uint64_t>(label));
    const auto count = static_cast<std::uint64_t>(nn::count_of(shape().input));
    for (std::uint64_t i = 0; i < count; ++i) {
      const float noise = stream.normal_pair(i).first;
      batch.inputs.values.push_back(noise + pattern.normal_pair(i).first);
    }
  }

  RandomStream patterns_;  // what the numbers of each class are beside the noise
};

/// Of a text of tokens.
std::uint16_t token_at(std::string_view text, std::size_t number) {
  const auto low = static_cast<unsigned char>(text[2 * number]);
  const auto high = static_cast<unsigned char>(text[2 * number + 1]);
  return static_cast<std::uint16_t>(low | (high << 8U));
}

class TokensOfText : public SampleBySample {
 public:
  TokensOfText(std::shared_ptr<const FileView> text, BatchShape shape, std::uint64_t seed)
      : SampleBySample(std::move(shape), seed), text_(std::move(text)) {}

 private:
  void add_sample(const RandomStream& stream, Batch& batch) const override {
    const std::int64_t length = shape().input.front();
    const std::string_view text = text_->bytes();
    const std::int64_t pieces = static_cast<std::int64_t>(text.size() / 2) - length;
    const auto first = static_cast<std::size_t>(stream.below(pieces, 0));
    for (std::size_t i = first; i < first + static_cast<std::size_t>(length); ++i) {
      batch.inputs.values.push_back(token_at(text, i));
      batch.targets.values.push_back(token_at(text, i + 1));
    }
  }

  std::shared_ptr<const FileView> text_;
};

/// The first token that is not below `vocabulary`; the number of tokens if all are.
std::size_t first_beyond(std::string_view text, std::int64_t vocabulary) {
  const std::size_t count = text.size() / 2;
  if (vocabulary > UINT16_MAX) return count;
  std::size_t i = 0;
  while (i < count && token_at(text, i) < vocabulary) ++i;
  return i;
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

std::unique_ptr<Batches> make_token_batches(std::shared_ptr<const FileView> text,
                                            const std::string& source_name, const BatchShape& shape,
                                            std::uint64_t seed) {
  const auto refuse = [&source_name](std::string place, std::string message) {
    throw Error{ErrorKind::BadInput, source_name, {{std::move(place), std::move(message)}}};
  };
  if (shape.vocabulary == 0 || shape.targets != shape.input || shape.classes < shape.vocabulary) {
    refuse("", "expected a model that takes tokens and predicts the next one at each position");
  }
  const std::string_view bytes = text->bytes();
  if (bytes.size() % 2 != 0) {
    refuse("", fmt::format("expected two bytes for each token, got {} bytes", bytes.size()));
  }
  const std::size_t count = bytes.size() / 2;
  const std::int64_t least = shape.input.front() + 1;
  if (static_cast<std::int64_t>(count) < least) {
    refuse("", fmt::format("expected at least {} tokens, a sample and its last target, got {}",
                           least, count));
  }
  if (const std::size_t place = first_beyond(bytes, shape.vocabulary); place < count) {
    refuse(fmt::format("token {}", place),
           fmt::format("expected a number below {}, the size of the vocabulary, got {}",
                       shape.vocabulary, token_at(bytes, place)));
  }
  return std::make_unique<TokensOfText>(std::move(text), shape, seed);
}

}  // namespace dapple
