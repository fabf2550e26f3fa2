#include "dapple/core/random.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

namespace dapple {

TEST_CASE("a stream's numbers depend on its seed, its names and their place alone") {
  // Splitmix64 from the state 0 begins with 0xE220A8397B1DCDAF, and mixing zero gives zero.
  CHECK(RandomStream(0).bits(0) == 0xE220A8397B1DCDAFU);
  CHECK(RandomStream(0).bits(1) == 0x6E789E6AA1B965F4U);
  const RandomStream stream(7);
  CHECK(stream.bits(3) == RandomStream(7).bits(3));
  CHECK(stream.bits(3) != stream.bits(4));
  CHECK(stream.bits(3) != RandomStream(8).bits(3));
  CHECK(stream.of("a").bits(3) != stream.of("b").bits(3));
  CHECK(stream.of(1U).bits(3) != stream.of(2U).bits(3));
}

TEST_CASE("numbers below a count are all there, about as often") {
  const RandomStream stream(1);
  int counts[5] = {};
  for (std::uint64_t i = 0; i < 5'000; ++i) ++counts[stream.below(5, i)];
  // 1000 each, give or take 4 times sqrt(5000 * 0.2 * 0.8) = 28.
  for (const int count : counts) CHECK(std::abs(count - 1'000) < 4 * 29);
}

TEST_CASE("normal numbers have mean zero, deviation one, and come in pairs without a link") {
  const RandomStream stream(1);
  constexpr int kPairs = 10'000;
  double sum = 0;
  double squares = 0;
  double products = 0;
  for (std::uint64_t i = 0; i < kPairs; ++i) {
    const auto [first, second] = stream.normal_pair(i);
    REQUIRE(std::isfinite(first));
    REQUIRE(std::isfinite(second));
    sum += static_cast<double>(first + second);
    squares += static_cast<double>(first * first + second * second);
    products += static_cast<double>(first * second);
  }
  // Four deviations: sqrt(1 / 20000) of the mean, sqrt(2 / 20000) of the square, sqrt(1 / 10000) of
  // the product.
  CHECK(std::abs(sum / (2 * kPairs)) < 4 * 0.0071);
  CHECK(std::abs(squares / (2 * kPairs) - 1) < 4 * 0.01);
  CHECK(std::abs(products / kPairs) < 4 * 0.01);
}

TEST_CASE("a sequence is the Mersenne Twister, the same with every standard library") {
  RandomSequence sequence(5489);
  for (int i = 1; i < 10'000; ++i) sequence();
  CHECK(sequence() == 9'981'545'732'273'789'042U);  // the C++ standard, [rand.predef]
}

TEST_CASE("a sequence draws every integer of a range, its ends included, and nothing else") {
  RandomSequence sequence(1);
  std::set<std::int64_t> rolled;
  for (int i = 0; i < 200; ++i) rolled.insert(sequence.roll(-1, 2));
  CHECK(rolled == std::set<std::int64_t>{-1, 0, 1, 2});
  for (int i = 0; i < 200; ++i) {
    REQUIRE(sequence.below(3) < 3);
    REQUIRE(sequence.chance(100));
    REQUIRE_FALSE(sequence.chance(0));
  }
}

}  // namespace dapple
