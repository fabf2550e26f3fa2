#include <algorithm>
#include <catch2/catch.hpp>

#include "dapple/core/error.h"
#include "dapple/core/random.h"
#include "dapple/profile/model_profile.h"

namespace dapple {
namespace {

Measurement timed(std::int64_t batch, std::int64_t forward, std::int64_t backward) {
  Measurement point;
  point.batch_size = batch;
  point.forward = {forward};
  point.backward = {backward};
  return point;
}

Layer layer_of(std::vector<Measurement> measurements, std::int64_t overhead = 0) {
  Layer layer;
  layer.name = "layer";
  layer.fixed_overhead = {overhead};
  layer.measurements = std::move(measurements);
  return layer;
}

TEST_CASE("A single proportional measurement scales with the samples, rounded up") {
  const Layer layer = layer_of({timed(4, 10, 21)});
  const auto scaling = BatchScaling::Proportional;
  // 10 * 1 / 4 = 2.5, 10 * 2 / 4 = 5, 10 * 7 / 4 = 17.5
  CHECK(forward_time(layer, 1, scaling, kOne) == Duration{3});
  CHECK(forward_time(layer, 2, scaling, kOne) == Duration{5});
  CHECK(forward_time(layer, 4, scaling, kOne) == Duration{10});
  CHECK(forward_time(layer, 7, scaling, kOne) == Duration{18});
  // 21 * 3 / 4 = 15.75
  CHECK(backward_time(layer, 3, scaling, kOne) == Duration{16});
}

TEST_CASE("A single measurement with a floor is never faster than it was measured") {
  const Layer layer = layer_of({timed(4, 10, 20)});
  CHECK(forward_time(layer, 1, BatchScaling::Floor, kOne) == Duration{10});
  CHECK(forward_time(layer, 4, BatchScaling::Floor, kOne) == Duration{10});
  // 10 * 6 / 4 = 15
  CHECK(forward_time(layer, 6, BatchScaling::Floor, kOne) == Duration{15});
}

TEST_CASE("The fixed overhead of a single measurement does not scale") {
  const Layer layer = layer_of({timed(4, 100, 0)}, 20);
  // 20 + 80 * 1 / 4 = 40, 20 + 80 * 8 / 4 = 180, 20 + 80 * 3 / 4 = 80
  CHECK(forward_time(layer, 1, BatchScaling::Proportional, kOne) == Duration{40});
  CHECK(forward_time(layer, 8, BatchScaling::Proportional, kOne) == Duration{180});
  CHECK(forward_time(layer, 3, BatchScaling::Proportional, kOne) == Duration{80});
  // 20 + 80 * max(1, 3 / 4) = 100
  CHECK(forward_time(layer, 3, BatchScaling::Floor, kOne) == Duration{100});
  // No backward was measured, so there is no overhead in it, at any batch.
  CHECK(backward_time(layer, 1, BatchScaling::Proportional, kOne) == Duration{0});
  CHECK(backward_time(layer, 40, BatchScaling::Proportional, kOne) == Duration{0});
}

TEST_CASE("Times are linear between measurements and flat below the smallest") {
  const Layer layer = layer_of({timed(2, 10, 7), timed(5, 20, 8), timed(9, 21, 40)});
  CHECK(forward_time(layer, 1, std::nullopt, kOne) == Duration{10});
  CHECK(forward_time(layer, 2, std::nullopt, kOne) == Duration{10});
  // 10 + 10 * 1 / 3 = 13.33, 10 + 10 * 2 / 3 = 16.67
  CHECK(forward_time(layer, 3, std::nullopt, kOne) == Duration{14});
  CHECK(forward_time(layer, 4, std::nullopt, kOne) == Duration{17});
  CHECK(forward_time(layer, 5, std::nullopt, kOne) == Duration{20});
  // 20 + 1 * 3 / 4 = 20.75
  CHECK(forward_time(layer, 8, std::nullopt, kOne) == Duration{21});
  // 8 + 32 * 1 / 4 = 16
  CHECK(backward_time(layer, 6, std::nullopt, kOne) == Duration{16});
}

TEST_CASE("Above the largest measurement the last slope goes on, unless it falls") {
  const Layer rising = layer_of({timed(2, 10, 0), timed(4, 13, 0)});
  // 13 + 3 * 1 / 2 = 14.5, 13 + 3 * 6 / 2 = 22
  CHECK(forward_time(rising, 5, std::nullopt, kOne) == Duration{15});
  CHECK(forward_time(rising, 10, std::nullopt, kOne) == Duration{22});
  const Layer falling = layer_of({timed(2, 16, 0), timed(4, 13, 0)});
  // 16 - 3 * 1 / 2 = 14.5
  CHECK(forward_time(falling, 3, std::nullopt, kOne) == Duration{15});
  CHECK(forward_time(falling, 4, std::nullopt, kOne) == Duration{13});
  CHECK(forward_time(falling, 1000, std::nullopt, kOne) == Duration{13});
}

TEST_CASE("The time scale is inside the one rounding") {
  const Layer layer = layer_of({timed(4, 10, 0)});
  // 10 * 1 / 4 * 0.4 = 1 exactly; rounded before the scale it would be 3 * 0.4 = 1.2, so 2.
  CHECK(forward_time(layer, 1, BatchScaling::Proportional, Factor{400'000'000}) == Duration{1});
  // 10 * 0.4 = 4; 10 * 0.400000001 = 4.00000001
  CHECK(forward_time(layer, 4, BatchScaling::Proportional, Factor{400'000'000}) == Duration{4});
  CHECK(forward_time(layer, 4, BatchScaling::Proportional, Factor{400'000'001}) == Duration{5});
  CHECK(forward_time(layer, 4, BatchScaling::Proportional, Factor{0}) == Duration{0});
}

TEST_CASE("The largest figures of a file do not overflow") {
  const Layer layer = layer_of({timed(kMaxCount, kMaxCount, 0)});
  // 10^15 * (10^15 - 1) / 10^15 * 0.5 = 499,999,999,999,999.5; the product of the three integers is
  // 5 * 10^38, above 2^127.
  CHECK(forward_time(layer, kMaxCount - 1, BatchScaling::Proportional, Factor{500'000'000}) ==
        Duration{500'000'000'000'000});
  CHECK(forward_time(layer, 1, BatchScaling::Proportional, kOne) == Duration{1});
}

TEST_CASE("A time that leaves 63 bits is a bug of the caller, not a wrong number") {
  const Layer layer = layer_of({timed(1, kMaxCount, 0)});
  CHECK_THROWS_AS(forward_time(layer, kMaxCount, BatchScaling::Proportional, kOne), Bug);
  CHECK_THROWS_AS(forward_time(layer, 1, std::nullopt, kOne), Bug);
  CHECK_THROWS_AS(forward_time(layer, 0, BatchScaling::Proportional, kOne), Bug);
}

/// A fraction with a positive denominator; products here stay far below 2^127.
struct Rational {
  Wide numerator = 0;
  Wide denominator = 1;

  friend Rational operator+(Rational a, Rational b) {
    return {a.numerator * b.denominator + b.numerator * a.denominator,
            a.denominator * b.denominator};
  }
  friend Rational operator*(Rational a, Rational b) {
    return {a.numerator * b.numerator, a.denominator * b.denominator};
  }
};

/// Time by the words of the header, in fractions: the overhead, the slope, the flat ends.
Rational oracle_time(const Layer& layer, std::int64_t samples, BatchScaling scaling) {
  const auto& points = layer.measurements;
  if (points.size() == 1) {
    const Rational overhead{std::min(layer.fixed_overhead.ns, points[0].forward.ns), 1};
    const Rational rest{points[0].forward.ns - overhead.numerator, 1};
    const bool is_flat = scaling == BatchScaling::Floor && samples < points[0].batch_size;
    return overhead + rest * (is_flat ? Rational{1, 1} : Rational{samples, points[0].batch_size});
  }
  if (samples < points.front().batch_size) return {points.front().forward.ns, 1};
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    const bool is_last = i + 2 == points.size();
    if (samples > points[i + 1].batch_size && !is_last) continue;
    const std::int64_t rise = points[i + 1].forward.ns - points[i].forward.ns;
    if (samples > points[i + 1].batch_size && rise < 0) return {points[i + 1].forward.ns, 1};
    const Rational slope{rise, points[i + 1].batch_size - points[i].batch_size};
    return Rational{points[i].forward.ns, 1} + slope * Rational{samples - points[i].batch_size, 1};
  }
  return {};
}

TEST_CASE("Random times are the exact rational, rounded up once") {
  RandomSequence random(20260101);
  const auto draw = [&](std::int64_t low, std::int64_t high) { return random.roll(low, high); };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<Measurement> points;
    const std::int64_t count = draw(1, 4);
    std::int64_t batch = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      batch += draw(1, 20);
      points.push_back(timed(batch, draw(0, 1'000'000), 0));
    }
    const Layer layer = layer_of(points, draw(0, 3) == 0 ? draw(0, 2'000'000) : 0);
    const auto scaling = draw(0, 1) == 0 ? BatchScaling::Proportional : BatchScaling::Floor;
    const std::int64_t samples = draw(1, 100);
    const Factor scale = draw(0, 2) == 0 ? kOne : Factor{draw(1, 3'000'000'000)};

    const Rational exact =
        oracle_time(layer, samples, scaling) * Rational{scale.billionths, 1'000'000'000};
    const Wide rounded = forward_time(layer, samples, scaling, scale).ns;
    REQUIRE(rounded * exact.denominator >= exact.numerator);
    REQUIRE((rounded - 1) * exact.denominator < exact.numerator);
  }
}

TEST_CASE("Sizes are proportional to samples, from the largest measured batch, rounded up") {
  Measurement small = timed(2, 1, 1);
  small.output = {1'000'000};
  Measurement large = timed(8, 1, 1);
  large.output = {100};
  large.stash = {33};
  large.workspace = {7};
  const Layer layer = layer_of({small, large});
  // 100 * 3 / 8 = 37.5; 33 * 3 / 8 = 12.375; 7 * 16 / 8 = 14
  CHECK(output_size(layer, 3) == Bytes{38});
  CHECK(stash_size(layer, 3) == Bytes{13});
  CHECK(workspace_size(layer, 16) == Bytes{14});
  CHECK(output_size(layer, 8) == Bytes{100});
}

TEST_CASE("The published output of a BERT-48 encoder is that of its formula") {
  Measurement encoder = timed(2, 2'690'000, 4'470'000);
  encoder.output = {4'325'376};
  // 384 tokens * (1024 hidden + 384 mask) * 4 bytes = 2,162,688 for one sample
  CHECK(output_size(layer_of({encoder}), 1) == Bytes{2'162'688});
}

}  // namespace
}  // namespace dapple
