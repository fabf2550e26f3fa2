#include <catch2/catch.hpp>

#include "../../support/plans.h"

#include "dapple/cost/buckets.h"

namespace dapple {
namespace {

using namespace small;

std::vector<Bytes> bytes(std::initializer_list<std::int64_t> counts) {
  std::vector<Bytes> result;
  for (const std::int64_t count : counts) result.push_back({count});
  return result;
}

ModelProfile model_with_parameters(std::initializer_list<std::int64_t> counts) {
  std::vector<LayerFigures> layers;
  for (const std::int64_t count : counts) layers.push_back({.parameters = count});
  return model_of(layers);
}

TEST_CASE("buckets fill from the last layer and close when they hold the bucket size") {
  // Of 10: 3 + 4 + 5 = 12 closes at layer 2, then 10 closes at layer 1 alone, then 2 is left.
  const ModelProfile model = model_with_parameters({2, 10, 5, 4, 3});
  const GradientBuckets buckets = gradient_buckets(model, {0, 5}, {10});
  CHECK(buckets.sizes == bytes({12, 10, 2}));
  CHECK(buckets.first_layer == std::vector<std::int32_t>{2, 1, 0});
}

TEST_CASE("a bucket of exactly the bucket size is closed") {
  const GradientBuckets buckets = gradient_buckets(model_with_parameters({6, 6, 4}), {0, 3}, {10});
  CHECK(buckets.sizes == bytes({10, 6}));
  CHECK(buckets.first_layer == std::vector<std::int32_t>{1, 0});
}

TEST_CASE("layers without parameters neither open a bucket nor delay one") {
  // Layer 0 has none: the bucket is ready with layer 1.
  const GradientBuckets buckets =
      gradient_buckets(model_with_parameters({0, 6, 0, 4, 0}), {0, 5}, {100});
  CHECK(buckets.sizes == bytes({10}));
  CHECK(buckets.first_layer == std::vector<std::int32_t>{1});
  CHECK(gradient_buckets(model_with_parameters({0, 0}), {0, 2}).sizes.empty());
}

TEST_CASE("only the stage's own layers are in its buckets") {
  const GradientBuckets buckets =
      gradient_buckets(model_with_parameters({1, 2, 3, 4}), {1, 3}, {1});
  CHECK(buckets.sizes == bytes({3, 2}));
  CHECK(buckets.first_layer == std::vector<std::int32_t>{2, 1});
}

TEST_CASE("a gradient has the optimizer's bytes per parameter byte, rounded up per layer") {
  ModelProfile model = model_with_parameters({3, 5});
  model.optimizer.gradient_bytes_per_parameter_byte = Factor{500'000'000};
  // 1.5 -> 2 and 2.5 -> 3.
  CHECK(gradient_buckets(model, {0, 2}).sizes == bytes({5}));
}

TEST_CASE("the default bucket is 25 MiB") {
  const std::int64_t bucket = 25LL * 1024 * 1024;
  const GradientBuckets buckets =
      gradient_buckets(model_with_parameters({7, 1, bucket - 1}), {0, 3});
  CHECK(buckets.sizes == bytes({bucket, 7}));
}

StagePlan stage_with(LayerRange layers, std::size_t replicas, std::vector<Bytes> buckets) {
  StagePlan stage;
  stage.layers = layers;
  for (std::size_t i = 0; i < replicas; ++i) stage.devices.push_back(index_at<DeviceIndex>(i));
  stage.gradient_buckets = std::move(buckets);
  return stage;
}

TEST_CASE("a plan's buckets are matched with the layers whose gradients they hold") {
  const ModelProfile model = model_with_parameters({2, 10, 5, 4, 3});
  const auto matched = match_buckets(model, stage_with({0, 5}, 2, bytes({7, 15, 2})));
  REQUIRE(matched.has_value());
  CHECK(matched->sizes == bytes({7, 15, 2}));
  CHECK(matched->first_layer == std::vector<std::int32_t>{3, 1, 0});
}

TEST_CASE("buckets that cut a layer, leave one out or add one are not matched") {
  const ModelProfile model = model_with_parameters({2, 10, 5, 4, 3});
  CHECK_FALSE(match_buckets(model, stage_with({0, 5}, 2, bytes({6, 16, 2}))));
  CHECK_FALSE(match_buckets(model, stage_with({0, 5}, 2, bytes({7, 15}))));
  CHECK_FALSE(match_buckets(model, stage_with({0, 5}, 2, bytes({7, 15, 2, 1}))));
  CHECK_FALSE(match_buckets(model, stage_with({0, 5}, 2, {})));
}

TEST_CASE("one replica has no buckets, and a stage without parameters needs none") {
  const ModelProfile model = model_with_parameters({0, 4});
  const auto alone = match_buckets(model, stage_with({0, 2}, 1, {}));
  REQUIRE(alone.has_value());
  CHECK(alone->sizes.empty());
  const auto bare = match_buckets(model, stage_with({0, 1}, 2, {}));
  REQUIRE(bare.has_value());
  CHECK(bare->sizes.empty());
}

}  // namespace
}  // namespace dapple
