// Variants of layers: which forms of parallelism a profile has, and what becomes of its figures.

#include <catch2/catch.hpp>

#include "dapple/profile/variants.h"

namespace dapple {
namespace {

Measurement measurement(std::int64_t time, std::int64_t size) {
  return {.batch_size = 1,
          .forward = {time},
          .backward = {2 * time},
          .input_gradient = {},
          .weight_gradient = {},
          .output = {size},
          .stash = {size},
          .workspace = {}};
}

LayerVariant variant(Parallelism parallelism, std::int64_t time) {
  return {.parallelism = parallelism,
          .parameters = {50},
          .fixed_overhead = {1},
          .measurements = {measurement(time, 4)},
          .forward_collectives = {{.size_per_sample = {8}}},
          .backward_collectives = {{.size_per_sample = {16}, .count = 2}}};
}

ModelProfile two_layers() {
  ModelProfile profile;
  profile.batch_scaling = BatchScaling::Proportional;
  for (const char* name : {"a", "b"}) {
    Layer layer;
    layer.name = name;
    layer.parameters = {100};
    layer.measurements = {measurement(10, 8)};
    layer.variants = {variant({2, false}, 6), variant({2, true}, 5)};
    profile.layers.push_back(layer);
  }
  profile.layers[1].inputs = {LayerIndex{0}};
  return profile;
}

TEST_CASE("a profile has the forms that every layer has a variant for") {
  ModelProfile profile = two_layers();
  CHECK(parallelisms_of(profile) == std::vector<Parallelism>{{}, {2, false}, {2, true}});
  profile.layers[1].variants.pop_back();
  CHECK(parallelisms_of(profile) == std::vector<Parallelism>{{}, {2, false}});
  CHECK(layer_without(profile, {2, true}) == "b");
  CHECK(layer_without(profile, {2, false}) == "");
  CHECK(layer_without(profile, {}) == "");
}

TEST_CASE("with parallelism all figures are those of one device of the group") {
  const GroupRing ring{.members = 2, .bandwidth = {1'000'000'000}, .latency = {7}};
  const ModelProfile shared = with_parallelism(two_layers(), {2, true}, ring);
  CHECK(shared.tensor_parallel == 2);
  for (const Layer& layer : shared.layers) {
    CHECK(layer.parameters == Bytes{50});
    CHECK(layer.variants.empty());
  }
  // An all-reduce of n bytes over two devices takes n + 14 ns; an overhead of 1 does not scale.
  const LayerTable table(shared, 3, kOne);
  CHECK(table.forward({0, 1}) == Duration{(1 + 4 * 3) + (24 + 14)});
  CHECK(table.backward({0, 1}) == Duration{(1 + 9 * 3) + 2 * (48 + 14)});
  CHECK(table.forward_collectives({0, 2}) == Duration{2 * 38});
  CHECK(table.backward_collectives({1, 2}) == Duration{124});
  // The collectives of the backward come before the gradient of the input is complete.
  CHECK(table.input_gradient({0, 1}) == Duration{14 + 124});
  // No time scale changes them.
  CHECK(LayerTable(shared, 3, {2 * kOne.billionths}).forward({0, 1}) == Duration{2 * 13 + 38});
}

TEST_CASE("without parallelism a profile stays as it is") {
  const ModelProfile same = with_parallelism(two_layers(), {}, {});
  CHECK(same.layers.front().variants.size() == 2);
  CHECK(same.tensor_parallel == 1);
  const LayerTable table(same, 1, kOne);
  CHECK(table.forward_collectives({0, 2}) == Duration{});
  CHECK(table.forward({0, 2}) == Duration{20});
}

TEST_CASE("forms of parallelism are named") {
  CHECK(to_text(Parallelism{8, false}) == "tensor 8");
  CHECK(to_text(Parallelism{8, true}) == "tensor 8 with sequence parallelism");
  CHECK(short_text(Parallelism{8, true}) == "tensor 8, sequence");
}

}  // namespace
}  // namespace dapple
