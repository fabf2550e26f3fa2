#include "dapple/exec/train/batches.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dapple/core/error.h"

namespace dapple::exec {
namespace {

const BatchShape kTokens{.input = {4}, .vocabulary = 10, .targets = {4}, .classes = 10};
const BatchShape kImages{.input = {2, 3, 3}, .vocabulary = 0, .targets = {}, .classes = 5};

/// Little-endian in two bytes each.
std::string text_of(const std::vector<int>& tokens) {
  std::string text;
  for (const int token : tokens) {
    text += static_cast<char>(token % 256);
    text += static_cast<char>(token / 256);
  }
  return text;
}

std::shared_ptr<const io::FileView> view_of(const std::vector<int>& tokens) {
  return std::make_shared<const io::FileView>(text_of(tokens));
}

std::string refusal_of(const std::string& text, const BatchShape& shape) {
  try {
    make_token_batches(std::make_shared<const io::FileView>(text), "tokens.bin", shape, 1);
  } catch (const Error& error) { return error.what(); }
  return "";
}

void check_same(const Batch& a, const Batch& b) {
  CHECK(a.inputs.shape == b.inputs.shape);
  CHECK(a.inputs.values == b.inputs.values);
  CHECK(a.targets.shape == b.targets.shape);
  CHECK(a.targets.values == b.targets.values);
}

TEST_CASE("a sample depends on seed, iteration and its number, and on no other") {
  std::vector<int> tokens;
  for (int i = 0; i < 200; ++i) tokens.push_back(i * i % 10);
  for (const std::uint64_t seed : {1U, 2U}) {
    std::vector<std::unique_ptr<Batches>> kinds;
    kinds.push_back(make_synthetic_batches(kTokens, seed));
    kinds.push_back(make_synthetic_batches(kImages, seed));
    kinds.push_back(make_token_batches(view_of(tokens), "tokens.bin", kTokens, seed));
    for (const auto& batches : kinds) {
      const Batch whole = batches->samples(3, 0, 8);
      CHECK(whole.inputs.samples() == 8);
      CHECK(whole.inputs.values.size() ==
            static_cast<std::size_t>(nn::count_of(whole.inputs.shape)));
      CHECK(whole.targets.values.size() ==
            static_cast<std::size_t>(nn::count_of(whole.targets.shape)));
      check_same(batches->samples(3, 2, 7),
                 {nn::samples_of(whole.inputs, 2, 7), nn::samples_of(whole.targets, 2, 7)});
      CHECK(batches->samples(4, 0, 8).inputs.values != whole.inputs.values);
    }
  }
  CHECK(make_synthetic_batches(kTokens, 1)->samples(0, 0, 8).inputs.values !=
        make_synthetic_batches(kTokens, 2)->samples(0, 0, 8).inputs.values);
}

/// FNV-1a over the bits of the numbers.
std::uint64_t digest_of(const nn::Tensor& tensor) {
  std::uint64_t digest = 0xCBF29CE484222325U;
  for (const float value : tensor.values) {
    digest = (digest ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001B3U;
  }
  return digest;
}

TEST_CASE("made-up samples keep their bits from version to version") {
  struct Known {
    BatchShape shape;
    std::uint64_t inputs;
    std::uint64_t targets;
  };
  const BatchShape several{.input = {3, 6}, .vocabulary = 0, .targets = {3}, .classes = 7};
  const BatchShape digits{.input = {784}, .vocabulary = 0, .targets = {}, .classes = 10};
  const Known all[] = {{kTokens, 0x478b3db47576ad05U, 0xf5ad64b34ee6ad05U},
                       {kImages, 0xdabfe12eae76af3cU, 0x828910eb56834fbdU},
                       {several, 0xce53a5c2523e871cU, 0x5e7305631708e6adU},
                       {digits, 0xd7a78e7f7f6677cfU, 0xe2eca76739234fbdU}};
  for (const Known& known : all) {
    const Batch batch = make_synthetic_batches(known.shape, 1)->samples(3, 2, 40);
    CHECK(digest_of(batch.inputs) == known.inputs);
    CHECK(digest_of(batch.targets) == known.targets);
  }
  // Of so many classes that their patterns are not kept, they are the same.
  BatchShape many = digits;
  many.classes = 2'000;
  const Batch batch = make_synthetic_batches(many, 1)->samples(0, 0, 200);
  const Batch few = make_synthetic_batches(digits, 1)->samples(0, 0, 200);
  int same = 0;
  for (std::int64_t i = 0; i < 200; ++i) {
    if (batch.targets.values[static_cast<std::size_t>(i)] !=
        few.targets.values[static_cast<std::size_t>(i)]) {
      continue;
    }
    ++same;
    CHECK(nn::samples_of(batch.inputs, i, i + 1).values ==
          nn::samples_of(few.inputs, i, i + 1).values);
  }
  CHECK(same > 0);
}

TEST_CASE("targets are the next tokens, and mostly follow from those before") {
  const Batch batch = make_synthetic_batches(kTokens, 1)->samples(0, 0, 100);
  int ruled = 0;
  for (std::size_t sample = 0; sample < 100; ++sample) {
    for (std::size_t i = 0; i < 4; ++i) {
      const float token = batch.inputs.values[4 * sample + i];
      const float target = batch.targets.values[4 * sample + i];
      CHECK((token >= 0 && token < 10));
      CHECK((target >= 0 && target < 10));
      if (i < 3) CHECK(target == batch.inputs.values[4 * sample + i + 1]);
      ruled += static_cast<int>(target) == (5 * static_cast<int>(token) + 7) % 10 ? 1 : 0;
    }
  }
  // 7 of 8 by the rule, and a tenth of the others by chance: 0.8875 of 400, give or take 4 times
  // sqrt(400 * 0.8875 * 0.1125) = 6.3.
  CHECK(ruled > 355 - 26);
  CHECK(ruled < 355 + 26);
}

TEST_CASE("a text's tokens come in pieces as they stand, each with its next token") {
  const auto batches = make_token_batches(view_of({1, 2, 3, 4, 5, 6}), "tokens.bin", kTokens, 1);
  // Pieces of four and one more may begin at the first or the second token.
  const Batch batch = batches->samples(0, 0, 50);
  bool begins_at[2] = {false, false};
  for (std::size_t sample = 0; sample < 50; ++sample) {
    const float first = batch.inputs.values[4 * sample];
    REQUIRE((first == 1 || first == 2));
    begins_at[static_cast<std::size_t>(first) - 1] = true;
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(batch.inputs.values[4 * sample + i] == first + static_cast<float>(i));
      CHECK(batch.targets.values[4 * sample + i] == first + static_cast<float>(i + 1));
    }
  }
  CHECK(begins_at[0]);
  CHECK(begins_at[1]);
}

TEST_CASE("a file that does not hold the model's tokens is refused") {
  CHECK(refusal_of("abc", kTokens) == "tokens.bin: expected two bytes for each token, got 3 bytes");
  CHECK(refusal_of(text_of({1, 2, 3, 4}), kTokens) ==
        "tokens.bin: expected at least 5 tokens, a sample and its last target, got 4");
  CHECK(refusal_of("", kTokens) ==
        "tokens.bin: expected at least 5 tokens, a sample and its last target, got 0");
  CHECK(refusal_of(text_of({1, 2, 3, 4, 5, 258, 9}), kTokens) ==
        "tokens.bin: token 5: expected a number below 10, the size of the vocabulary, got 258");
  CHECK(refusal_of(text_of({1, 2, 3, 4, 5}), kImages) ==
        "tokens.bin: expected a model that takes tokens and predicts the next one at each "
        "position");
}

}  // namespace
}  // namespace dapple::exec
