#include "dapple/exec/train/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/random.h"

namespace dapple::exec {
namespace {

/// Draws every sample from a random stream of its own.
class SampleBySample : public Batches {
 public:
  SampleBySample(BatchShape shape, std::uint64_t seed) : shape_(std::move(shape)), seed_(seed) {}

  nn::Tensor inputs(std::int64_t iteration, std::int64_t begin, std::int64_t end) const override {
    return each(shape_.input, iteration, begin, end,
                [this](const RandomStream& stream, auto& values) { add_input(stream, values); });
  }
  nn::Tensor targets(std::int64_t iteration, std::int64_t begin, std::int64_t end) const override {
    return each(shape_.targets, iteration, begin, end,
                [this](const RandomStream& stream, auto& values) { add_targets(stream, values); });
  }

 protected:
  using Values = std::vector<float>;

  const BatchShape& shape() const { return shape_; }

 private:
  virtual void add_input(const RandomStream& stream, Values& values) const = 0;
  virtual void add_targets(const RandomStream& stream, Values& values) const = 0;

  template <class Add>
  nn::Tensor each(const nn::Shape& sample_shape, std::int64_t iteration, std::int64_t begin,
                  std::int64_t end, const Add& add) const {
    nn::Tensor tensor{sample_shape, {}};
    tensor.shape.insert(tensor.shape.begin(), end - begin);
    tensor.values.reserve(static_cast<std::size_t>(nn::count_of(tensor.shape)));
    const RandomStream all = RandomStream(seed_).of(static_cast<std::uint64_t>(iteration));
    for (std::int64_t sample = begin; sample < end; ++sample) {
      add(all.of(static_cast<std::uint64_t>(sample)), tensor.values);
    }
    return tensor;
  }

  BatchShape shape_;
  std::uint64_t seed_;
};

/// Tokens as inputs, and the next tokens as targets.
class SyntheticTokens : public SampleBySample {
 public:
  using SampleBySample::SampleBySample;

 private:
  void add_input(const RandomStream& stream, Values& values) const override {
    const std::int64_t length = nn::count_of(shape().input);
    std::int64_t token = stream.below(shape().vocabulary, 0);
    for (std::int64_t position = 0; position < length; ++position) {
      values.push_back(static_cast<float>(token));
      token = next(token, stream, static_cast<std::uint64_t>(position));
    }
  }

  void add_targets(const RandomStream& stream, Values& values) const override {
    const std::int64_t length =
        std::min(nn::count_of(shape().input), nn::count_of(shape().targets));
    std::int64_t token = stream.below(shape().vocabulary, 0);
    for (std::int64_t position = 0; position < length; ++position) {
      token = next(token, stream, static_cast<std::uint64_t>(position));
      values.push_back(static_cast<float>(token % shape().classes));
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

/// The most numbers in class patterns that are kept, 4 MiB in all. If there are more, a pattern is
/// made each time.
constexpr std::int64_t kMostKeptNumbers = std::int64_t{1} << 20;

class SyntheticNumbers : public SampleBySample {
 public:
  SyntheticNumbers(BatchShape shape, std::uint64_t seed)
      : SampleBySample(std::move(shape), seed), patterns_(RandomStream(seed).of("patterns")) {}

 private:
  void add_input(const RandomStream& stream, Values& values) const override {
    const RandomStream labels = stream.of("labels");
    const std::int64_t targets = nn::count_of(shape().targets);
    const std::int64_t label = targets > 0 ? label_at(labels, targets - 1) : 0;
    const std::size_t count = numbers();
    std::call_once(are_kept_, [this] { keep_patterns(); });
    if (!kept_.empty()) {
      const float* pattern = kept_.data() + static_cast<std::size_t>(label) * count;
      for (std::size_t i = 0; i < count; ++i) {
        values.push_back(stream.normal_pair(i).first + pattern[i]);
      }
      return;
    }
    const RandomStream pattern = pattern_of(label);
    for (std::size_t i = 0; i < count; ++i) {
      const float noise = stream.normal_pair(i).first;
      values.push_back(noise + pattern.normal_pair(i).first);
    }
  }

  void add_targets(const RandomStream& stream, Values& values) const override {
    const RandomStream labels = stream.of("labels");
    for (std::int64_t i = 0; i < nn::count_of(shape().targets); ++i) {
      values.push_back(static_cast<float>(label_at(labels, i)));
    }
  }

  std::int64_t label_at(const RandomStream& labels, std::int64_t target) const {
    return labels.below(shape().classes, static_cast<std::uint64_t>(target));
  }
  RandomStream pattern_of(std::int64_t label) const {
    return patterns_.of(static_cast<std::uint64_t>(label));
  }
  std::size_t numbers() const { return static_cast<std::size_t>(nn::count_of(shape().input)); }

  void keep_patterns() const {
    const std::size_t count = numbers();
    if (shape().classes > kMostKeptNumbers / std::max<std::int64_t>(1, nn::count_of(shape().input)))
      return;
    kept_.reserve(static_cast<std::size_t>(shape().classes) * count);
    for (std::int64_t label = 0; label < shape().classes; ++label) {
      const RandomStream pattern = pattern_of(label);
      for (std::size_t i = 0; i < count; ++i) kept_.push_back(pattern.normal_pair(i).first);
    }
  }

  RandomStream patterns_;  // of the classes' patterns, to which noise is added
  mutable std::once_flag are_kept_;
  mutable Values kept_;  // the patterns of all classes, one after another; empty: too many
};

/// Returns a token of a text, little-endian in two bytes.
std::uint16_t token_at(std::string_view text, std::size_t number) {
  const auto low = static_cast<unsigned char>(text[2 * number]);
  const auto high = static_cast<unsigned char>(text[2 * number + 1]);
  return static_cast<std::uint16_t>(low | (high << 8U));
}

class TokensOfText : public SampleBySample {
 public:
  TokensOfText(std::shared_ptr<const io::FileView> text, BatchShape shape, std::uint64_t seed)
      : SampleBySample(std::move(shape), seed), text_(std::move(text)) {}

 private:
  void add_input(const RandomStream& stream, Values& values) const override {
    add_piece(first_of(stream), values);
  }
  void add_targets(const RandomStream& stream, Values& values) const override {
    add_piece(first_of(stream) + 1, values);
  }

  std::size_t length() const { return static_cast<std::size_t>(shape().input.front()); }
  /// Returns the token at which the sample's piece of the text begins.
  std::size_t first_of(const RandomStream& stream) const {
    const std::size_t pieces = text_->bytes().size() / 2 - length();
    return static_cast<std::size_t>(stream.below(static_cast<std::int64_t>(pieces), 0));
  }
  void add_piece(std::size_t begin, Values& values) const {
    const std::string_view text = text_->bytes();
    for (std::size_t i = begin; i < begin + length(); ++i) values.push_back(token_at(text, i));
  }

  std::shared_ptr<const io::FileView> text_;
};

/// Returns the index of the first token that is not below `vocabulary`; the number of tokens if all
/// are below.
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

std::unique_ptr<Batches> make_token_batches(std::shared_ptr<const io::FileView> text,
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

}  // namespace dapple::exec
