#include "dapple/cuda/kernels/arrays.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "on_device.h"

using namespace dapple;
using cuda::Type;
using small::Dice;

namespace {

double squared_norm_of(const nn::Tensor& tensor) {
  cuda::Device& device = small::device_of_tests();
  const cuda::DeviceTensor values = to_device(device, tensor, Type::Float32);
  const cuda::Buffer result = device.allocate({sizeof(double)});
  squared_norm(device, values.view(), result.address());
  double norm = 0;
  device.download(result.address(), std::as_writable_bytes(std::span(&norm, 1)), device.compute());
  return norm;
}

}  // namespace

TEST_CASE("numbers are rounded to the nearest, ties to even", "[cuda]") {
  // A bfloat16 has 8 bits behind the first one less one: 1 + 1/256 lies between 1 and 1 + 1/128.
  const float between = 1 + 1.0F / 256;
  const float above = 1 + 3.0F / 256;
  const nn::Tensor numbers{{6}, {between, above, -between, 1 + 1.0F / 128, 3e38F, 1e-41F}};
  CHECK(small::rounded(numbers, Type::BFloat16).values[0] == 1);
  CHECK(small::rounded(numbers, Type::BFloat16).values[1] == 1 + 1.0F / 64);
  CHECK(small::rounded(numbers, Type::BFloat16).values[2] == -1);
  CHECK(small::rounded(numbers, Type::BFloat16).values[3] == 1 + 1.0F / 128);
  CHECK(small::rounded(numbers, Type::Float32).values == numbers.values);
  // Half precision: 11 bits, up to 65,504, in steps of 2^-24 near zero.
  const nn::Tensor halves{{6},
                          {1 + 1.0F / 2'048, 65'519, 65'520, std::ldexp(1.5F, -24),
                           std::ldexp(0.5F, -24), 1 + 3.0F / 2'048}};
  const nn::Tensor found = small::rounded(halves, Type::Float16);
  CHECK(found.values[0] == 1);
  CHECK(found.values[1] == 65'504);
  CHECK(std::isinf(found.values[2]));
  CHECK(found.values[3] == std::ldexp(2.0F, -24));
  CHECK(found.values[4] == 0);
  CHECK(found.values[5] == 1 + 1.0F / 512);
}

TEST_CASE("token numbers pass as they are", "[cuda]") {
  const nn::Tensor tokens{{4}, {0, 1, 50'256, 16'777'215}};
  CHECK(small::rounded(tokens, Type::Int32).values == tokens.values);
}

TEST_CASE("a larger array repeats the numbers, of which the last time may take some only",
          "[cuda]") {
  cuda::Device& device = small::device_of_tests();
  const cuda::DeviceTensor once = to_device(device, {{3}, {1, 2, 3}}, Type::Float32);
  for (const Type type : {Type::Float32, Type::BFloat16, Type::Int32}) {
    const cuda::DeviceTensor again = make_tensor(device, {2, 4}, type);
    repeat(device.compute(), once.view(), again.view());
    CHECK(to_host(device, again).values == std::vector<float>{1, 2, 3, 1, 2, 3, 1, 2});
    const cuda::DeviceTensor less = make_tensor(device, {2}, type);
    repeat(device.compute(), once.view(), less.view());
    CHECK(to_host(device, less).values == std::vector<float>{1, 2});
  }
}

TEST_CASE("arrays are added, scaled and cleared wherever they begin", "[cuda]") {
  Dice dice(81);
  cuda::Device& device = small::device_of_tests();
  for (const Type type : {Type::Float32, Type::BFloat16, Type::Float16}) {
    for (std::int64_t begin = 0; begin < 9; ++begin) {
      const nn::Tensor first = small::random_normal({700}, 1, dice);
      const nn::Tensor second = small::rounded(small::random_normal({700}, 1, dice), type);
      const cuda::DeviceTensor sum = to_device(device, first, Type::Float32);
      const cuda::DeviceTensor addend = to_device(device, second, type);
      const std::int64_t end = 700 - dice.roll(0, 9);
      add(device.compute(), addend.view().part(begin, end), sum.view().part(begin, end));
      scale(device.compute(), 0.5F, sum.view().part(begin, end));
      fill_with_zeros(device.compute(), sum.view().part(end, 700));
      const nn::Tensor found = to_host(device, sum);
      for (std::int64_t i = 0; i < 700; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const float expected = i < begin ? first.values[at]
                               : i < end ? 0.5F * (first.values[at] + second.values[at])
                                         : 0;
        REQUIRE(found.values[at] == expected);
      }
    }
  }
}

TEST_CASE("pieces of an array are added to arrays that lie anywhere", "[cuda]") {
  Dice dice(83);
  cuda::Device& device = small::device_of_tests();
  for (std::int64_t pieces = 1; pieces <= 4; ++pieces) {
    const std::int64_t count = dice.roll(1, 700);
    const nn::Tensor first = small::random_normal({pieces * (count + 3)}, 1, dice);
    const nn::Tensor second = small::random_normal({pieces * count}, 1, dice);
    const cuda::DeviceTensor sum = to_device(device, first, Type::Float32);
    const cuda::DeviceTensor addend = to_device(device, second, Type::Float32);
    std::vector<cuda::View> sums;
    nn::Tensor expected = first;
    for (std::int64_t piece = pieces; piece-- > 0;) {  // the last array first
      const std::int64_t begin = piece * (count + 3);
      const std::int64_t from = (pieces - 1 - piece) * count;
      sums.push_back(sum.view().part(begin, begin + count));
      for (std::int64_t i = 0; i < count; ++i) {
        expected.values[static_cast<std::size_t>(begin + i)] +=
            second.values[static_cast<std::size_t>(from + i)];
      }
    }
    add_pieces(device.compute(), addend.view(), sums);
    CHECK(to_host(device, sum).values == expected.values);
  }
}

TEST_CASE("a squared norm is that of all numbers, and not finite where one of them is not",
          "[cuda]") {
  Dice dice(82);
  for (const std::int64_t count : {1, 5, 256, 3'001, 70'000, 300'001}) {
    nn::Tensor values = small::random_normal({count}, 3, dice);
    double expected = 0;
    for (const float value : values.values) expected += double{value} * double{value};
    CHECK(squared_norm_of(values) == Approx(expected).epsilon(1e-12));
    if (count > 10'000) continue;  // once each thread adds up several is enough
    float& one = values.values[static_cast<std::size_t>(dice.roll(0, count - 1))];
    one = 3e38F;
    CHECK(std::isfinite(squared_norm_of(values)));
    for (const float fault : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      one = fault;
      CHECK_FALSE(std::isfinite(squared_norm_of(values)));
    }
  }
}
