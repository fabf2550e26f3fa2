#include "dapple/exec/reshard/tensor_part.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/exec/reshard/resharded_tensors.h"

namespace dapple::exec {
namespace {

/// Sample s has the number 100 s + 10 p + c at column c of position p.
std::vector<float> held(const TensorPart& part) {
  std::vector<float> values;
  for (std::int64_t s = part.samples.begin; s < part.samples.end; ++s) {
    for (const nn::OutputPart::Range& range : part.of_sample.positions) {
      for (std::int64_t p = range.begin; p < range.end; ++p) {
        for (std::int64_t c = 0; c < part.of_sample.width; ++c) {
          const std::int64_t column = part.of_sample.columns.begin + c;
          const bool is_padding = column >= part.of_sample.columns.end;
          values.push_back(is_padding ? 0.0F : static_cast<float>(100 * s + 10 * p + column));
        }
      }
    }
  }
  return values;
}

/// Samples of four positions with three columns.
TensorPart part(SampleRange samples, std::vector<nn::OutputPart::Range> positions,
                nn::OutputPart::Range columns = {0, 3}, std::int64_t width = 3) {
  return {.samples = samples,
          .of_sample = {.positions = std::move(positions), .columns = columns, .width = width}};
}

HostBytes bytes_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return HostBytes(bytes.begin(), bytes.end());
}

TEST_CASE("what two parts have in common is in the order of samples, positions and columns") {
  // The first and the last position of two samples, and the last three positions of the second.
  const TensorPart ends = part({0, 2}, {{0, 1}, {3, 4}});
  const TensorPart rest = part({1, 3}, {{1, 4}});
  CHECK(count_of(ends) == 2 * 2 * 3);
  CHECK(count_of(rest) == 2 * 3 * 3);
  CHECK(count_of_common(ends, rest) == 3);
  CHECK(take_sent(held(ends), ends, rest) == std::vector<float>{130, 131, 132});
  CHECK(take_sent(held(rest), rest, ends) == std::vector<float>{130, 131, 132});
  const TensorPart other_samples = part({2, 4}, {{0, 4}});
  CHECK(count_of_common(ends, other_samples) == 0);
  CHECK(take_sent(held(ends), ends, other_samples).empty());
}

TEST_CASE("columns are held with padding, which is not sent") {
  // Three columns on two ranks with two each.
  const TensorPart first = part({0, 1}, {{0, 4}}, {0, 2}, 2);
  const TensorPart second = part({0, 1}, {{0, 4}}, {2, 3}, 2);
  const TensorPart middle = part({0, 1}, {{2, 4}}, {1, 3}, 2);
  CHECK(held(second) == std::vector<float>{2, 0, 12, 0, 22, 0, 32, 0});
  CHECK(take_sent(held(first), first, middle) == std::vector<float>{21, 31});
  CHECK(take_sent(held(second), second, middle) == std::vector<float>{22, 32});
  CHECK(count_of_common(first, second) == 0);
  std::vector<float> taken(4);
  put_sent(std::vector<float>{21, 31}, first, middle, taken);
  put_sent(std::vector<float>{22, 32}, second, middle, taken);
  CHECK(taken == held(middle));
  CHECK_THROWS_AS(put_sent(std::vector<float>{21}, first, middle, taken), Bug);
}

TEST_CASE("ranks with the same part serve receivers in turn, and themselves") {
  TensorPart same = part({0, 1}, {{0, 4}});
  same.of_sample.copies = 2;
  for (std::int64_t copy = 0; copy < 2; ++copy) {
    same.of_sample.copy = copy;
    for (std::int64_t receiver = 0; receiver < 4; ++receiver) {
      TensorPart to = part({0, 1}, {{0, 4}});
      to.rank = receiver;
      to.ranks = 4;
      CHECK(count_of_sent(same, to) == (receiver % 2 == copy ? 12 : 0));
    }
  }
}

TEST_CASE("ranks with the same part share what ranks of a smaller group receive") {
  const TensorPart everything = part({0, 3}, {{0, 4}});
  for (std::int64_t copies = 2; copies <= 7; ++copies) {
    for (std::int64_t receivers = 1; receivers < copies; ++receivers) {
      for (std::int64_t receiver = 0; receiver < receivers; ++receiver) {
        // All but the first position of the last two samples: 18 numbers.
        TensorPart to = part({1, 3}, {{1, 4}});
        to.rank = receiver;
        to.ranks = receivers;
        std::vector<float> arrived(18, -1);
        std::int64_t least = 18;
        std::int64_t most = 0;
        std::int64_t senders = 0;
        std::int64_t together = 0;
        for (std::int64_t copy = 0; copy < copies; ++copy) {
          TensorPart from = everything;
          from.of_sample.copies = copies;
          from.of_sample.copy = copy;
          const std::int64_t count = count_of_sent(from, to);
          const std::vector<float> sent = take_sent(held(from), from, to);
          CHECK(static_cast<std::int64_t>(sent.size()) == count);
          if (copy % receivers != receiver) {
            CHECK(count == 0);
            continue;
          }
          put_sent(sent, from, to, arrived);
          ++senders;
          together += count;
          least = std::min(least, count);
          most = std::max(most, count);
        }
        // Each number once.
        CHECK(arrived == held(to));
        CHECK(together == 18);
        CHECK(senders >= copies / receivers);
        CHECK(most - least <= 1);
      }
    }
  }
}

TEST_CASE("a tensor arrives in parts, and leaves until all have theirs") {
  const FragmentPlace place{Direction::Forward, StageIndex{1}, 0};
  const TensorPart whole = part({0, 2}, {{0, 4}});
  const TensorPart halves[] = {part({0, 2}, {{0, 1}, {3, 4}}), part({0, 2}, {{1, 3}})};
  ReshardedTensors tensors;
  for (const TensorPart& half : halves) {
    tensors.take_in({place, whole, {2, 4, 3}}, half, bytes_of(take_sent(held(half), half, whole)));
  }
  nn::Tensor tensor = tensors.take_arrived({place, whole, {2, 4, 3}});
  CHECK(tensor.shape == nn::Shape{2, 4, 3});
  CHECK(tensor.values == held(whole));
  CHECK(tensors.is_empty());
  tensors.hand_on(place, whole, tensor, 2);
  for (const TensorPart& half : halves) {
    CHECK_FALSE(tensors.is_empty());
    CHECK(tensors.give_out(place, half).size() == sizeof(float) * 2 * 2 * 3);
  }
  CHECK(tensors.is_empty());
  CHECK_THROWS_AS(tensors.give_out(place, whole), Bug);
  tensors.hand_on(place, whole, tensor, 0);
  CHECK(tensors.is_empty());
  tensors.take_in({place, whole, {2, 4, 3}}, halves[0], bytes_of(held(halves[0])));
  CHECK_THROWS_AS(tensors.take_arrived({place, whole, {2, 4, 3}}), Bug);
}

TEST_CASE("a rank behind the last column takes in nothing but padding") {
  const TensorPart none = part({0, 1}, {{0, 4}}, {3, 3}, 1);
  ReshardedTensors tensors;
  const FragmentPlace place{Direction::Backward, StageIndex{0}, 0};
  CHECK(tensors.take_arrived({place, none, {1, 4, 1}}).values == std::vector<float>(4));
}

}  // namespace
}  // namespace dapple::exec
