#include <algorithm>
#include <catch2/catch.hpp>

#include "dapple/core/error.h"
#include "dapple/core/random.h"
#include "dapple/profile/layer_table.h"
#include "dapple/profile/model_profile.h"

namespace dapple {
namespace {

Layer layer_with(std::int64_t forward, std::int64_t output, std::vector<LayerIndex> inputs) {
  Measurement point;
  point.batch_size = 2;
  point.forward = {forward};
  point.backward = {2 * forward};
  point.output = {output};
  point.stash = {10 * forward};
  point.workspace = {forward + 1};
  Layer layer;
  layer.name = "layer";
  layer.inputs = std::move(inputs);
  layer.measurements = {point};
  return layer;
}

ModelProfile profile_of(std::vector<Layer> layers) {
  ModelProfile profile;
  profile.batch_scaling = BatchScaling::Proportional;
  profile.layers = std::move(layers);
  return profile;
}

TEST_CASE("A range's figures are the sums of its layers' rounded figures") {
  const ModelProfile profile =
      profile_of({layer_with(3, 0, {}), layer_with(5, 0, {{0}}), layer_with(8, 0, {{1}})});
  const LayerTable table(profile, 1, kOne);
  // Forward at one of two samples: 1.5 -> 2, 2.5 -> 3, 4. Backward: 3, 5, 8.
  CHECK(table.forward({0, 3}) == Duration{9});
  CHECK(table.forward({1, 2}) == Duration{3});
  CHECK(table.forward({1, 1}) == Duration{0});
  CHECK(table.backward({0, 3}) == Duration{16});
  CHECK(table.backward({1, 3}) == Duration{13});
  // Stash: 30 / 2, 50 / 2, 80 / 2.
  CHECK(table.stash({0, 2}) == Bytes{40});
  // Workspace: 4 / 2, 6 / 2, 9 / 2 = 4.5.
  CHECK(table.largest_workspace({0, 2}) == Bytes{3});
  CHECK(table.largest_workspace({0, 3}) == Bytes{5});
  CHECK(table.largest_workspace({2, 2}) == Bytes{0});
}

TEST_CASE("A table is scaled to its device layer by layer") {
  const ModelProfile profile = profile_of({layer_with(3, 0, {}), layer_with(5, 0, {{0}})});
  const LayerTable table(profile, 2, Factor{500'000'000});
  // 3 * 0.5 -> 2, 5 * 0.5 -> 3; 6 * 0.5 = 3, 10 * 0.5 = 5.
  CHECK(table.forward({0, 2}) == Duration{5});
  CHECK(table.backward({0, 2}) == Duration{8});
}

TEST_CASE("A boundary has what the next layer takes where tensors are sent directly") {
  // The second layer takes nothing from the first, the third takes both.
  ModelProfile profile =
      profile_of({layer_with(3, 40, {}), layer_with(5, 60, {}), layer_with(8, 0, {{0}, {1}})});
  const LayerTable forwarded(profile, 2, kOne);
  CHECK(forwarded.boundary(1) == Bytes{40});
  CHECK(forwarded.boundary(2) == Bytes{100});
  profile.skip_tensors = SkipTensors::Direct;
  const LayerTable direct(profile, 2, kOne);
  CHECK(direct.boundary(1) == Bytes{0});
  CHECK(direct.boundary(2) == Bytes{60});
}

TEST_CASE("Only the first layers of a range recompute, of those that have the parts") {
  ModelProfile profile;
  // Layers 0 and 3 have no parts.
  profile.parallelism = {.recomputes = kWholeLayer, .recomputed_layers = LayerSelection::first(2)};
  ModelProfile recomputing;
  for (std::int32_t l = 0; l < 6; ++l) {
    profile.layers.push_back(layer_with(10 + l, 6, {}));
    if (l > 0) profile.layers.back().inputs = {{l - 1}};
    Layer again = profile.layers.back();
    again.recomputes = l != 0 && l != 3;
    if (again.recomputes) {
      Measurement& point = again.measurements.front();
      point.backward += point.forward;
      point.stash = {2};
      point.workspace = {1'000};
      // The least of both counts, whichever it is.
      if (l == 4) point.forward = {1};
    }
    recomputing.layers.push_back(again);
  }
  recomputing.batch_scaling = BatchScaling::Proportional;
  profile.batch_scaling = BatchScaling::Proportional;
  profile.recomputing.push_back(recomputing);
  const LayerTable table(profile, 2, kOne);
  // Layers 1 and 2 of all.
  CHECK(table.backward({0, 6}) == Duration{2 * (10 + 11 + 12 + 13 + 14 + 15) + 11 + 12});
  CHECK(table.stash({0, 6}) == Bytes{100 + 2 + 2 + 130 + 140 + 150});
  // Layers 2 and 4, and only those of a range that ends before.
  CHECK(table.backward({2, 6}) == Duration{2 * (12 + 13 + 14 + 15) + 12 + 14});
  CHECK(table.forward({2, 6}) == Duration{12 + 13 + 1 + 15});
  CHECK(table.backward({2, 4}) == Duration{2 * (12 + 13) + 12});
  CHECK(table.stash({5, 6}) == Bytes{2});
  CHECK(table.stash({6, 6}) == Bytes{0});
  CHECK(table.largest_workspace({0, 1}) == Bytes{11});
  CHECK(table.largest_workspace({3, 4}) == Bytes{14});
  CHECK(table.largest_workspace({0, 2}) == Bytes{1'000});
  CHECK(table.least_forward({0, 6}) == Duration{10 + 11 + 12 + 13 + 1 + 15});
  CHECK(table.least_backward({1, 3}) == Duration{2 * (11 + 12)});
  CHECK(table.boundary(3) == Bytes{6});
}

/// Two models alike but for what recomputing changes: some layers of the second have other figures.
ModelProfile random_recomputing(RandomSequence& random, std::int32_t layers) {
  const auto roll = [&](std::size_t most) { return static_cast<std::int64_t>(random.below(most)); };
  std::vector<Layer> kept;
  for (std::int32_t l = 0; l < layers; ++l) kept.push_back(layer_with(1 + roll(100), 6, {}));
  ModelProfile profile = profile_of(kept);
  for (Layer& layer : kept) {
    layer.recomputes = roll(4) > 0;
    if (!layer.recomputes) continue;
    layer.measurements.front().forward = {1 + roll(100)};
    layer.measurements.front().backward = {1 + roll(300)};
    layer.measurements.front().stash = {roll(1'000)};
    layer.measurements.front().workspace = {roll(200)};
  }
  profile.recomputing.push_back(profile_of(std::move(kept)));
  return profile;
}

TEST_CASE("Every n-th layer of a range recompute, whatever the range") {
  RandomSequence random(4711);
  for (std::int32_t layers = 1; layers <= 17; ++layers) {
    ModelProfile profile = random_recomputing(random, layers);
    const ModelProfile& recomputing = profile.recomputing.front();
    for (std::int64_t n = 2; n <= layers + 2; ++n) {
      profile.parallelism = {.recomputes = kWholeLayer,
                             .recomputed_layers = LayerSelection::every(n)};
      const LayerTable table(profile, 2, kOne);
      for (std::int32_t begin = 0; begin <= layers; ++begin) {
        Measurement sum;
        std::int64_t counted = 0;
        for (std::int32_t end = begin; end <= layers; ++end) {
          CAPTURE(layers, n, begin, end);
          CHECK(table.forward({begin, end}) == sum.forward);
          CHECK(table.backward({begin, end}) == sum.backward);
          CHECK(table.stash({begin, end}) == sum.stash);
          CHECK(table.largest_workspace({begin, end}) == sum.workspace);
          if (end == layers) break;
          const auto next = static_cast<std::size_t>(end);
          if (recomputing.layers[next].recomputes) ++counted;
          const bool recomputes = recomputing.layers[next].recomputes && counted % n == 0;
          const Measurement& of_layer =
              (recomputes ? recomputing : profile).layers[next].measurements.front();
          sum.forward += of_layer.forward;
          sum.backward += of_layer.backward;
          sum.stash += of_layer.stash;
          sum.workspace = std::max(sum.workspace, of_layer.workspace);
        }
      }
    }
  }
}

TEST_CASE("A chain's boundary is the output of the layer before it") {
  const ModelProfile profile =
      profile_of({layer_with(1, 10, {}), layer_with(1, 21, {{0}}), layer_with(1, 40, {{1}})});
  const LayerTable table(profile, 1, kOne);
  CHECK(table.boundary(0) == Bytes{0});
  CHECK(table.boundary(1) == Bytes{5});
  CHECK(table.boundary(2) == Bytes{11});  // 21 / 2 = 10.5
  CHECK(table.boundary(3) == Bytes{0});
}

TEST_CASE("A skip connection is on every boundary that it crosses, once") {
  // 0 feeds 1, 2 and 3; 1 feeds 2; 2 feeds 3. Outputs 100, 20, 6 at two samples.
  const ModelProfile profile =
      profile_of({layer_with(1, 100, {}), layer_with(1, 20, {{0}}), layer_with(1, 6, {{0}, {1}}),
                  layer_with(1, 1, {{0}, {2}})});
  const LayerTable table(profile, 2, kOne);
  CHECK(table.boundary(1) == Bytes{100});
  CHECK(table.boundary(2) == Bytes{120});  // 100 + 20
  CHECK(table.boundary(3) == Bytes{106});  // 100 + 6
  CHECK(table.boundary(4) == Bytes{0});
}

TEST_CASE("An output that nothing consumes crosses no boundary") {
  const ModelProfile profile =
      profile_of({layer_with(1, 8, {}), layer_with(1, 1000, {{0}}), layer_with(1, 4, {{0}})});
  const LayerTable table(profile, 2, kOne);
  CHECK(table.boundary(1) == Bytes{8});
  CHECK(table.boundary(2) == Bytes{8});
}

TEST_CASE("A layer whose input does not precede it is a bug of the reader") {
  const ModelProfile profile = profile_of({layer_with(1, 8, {{0}})});
  CHECK_THROWS_AS(LayerTable(profile, 1, kOne), Bug);
}

TEST_CASE("Random graphs: boundaries and sums equal a recount from the definition") {
  RandomSequence random(7);
  const auto draw = [&](std::int64_t low, std::int64_t high) { return random.roll(low, high); };
  for (int round = 0; round < 300; ++round) {
    std::vector<Layer> layers;
    const std::int64_t count = draw(1, 30);
    for (std::int64_t layer = 0; layer < count; ++layer) {
      std::vector<LayerIndex> inputs;
      for (std::int32_t input = 0; input < layer; ++input) {
        if (draw(0, 4) == 0) inputs.push_back({input});
      }
      layers.push_back(layer_with(draw(0, 999), draw(0, 999), inputs));
    }
    const ModelProfile profile = profile_of(layers);
    const std::int64_t samples = draw(1, 9);
    const LayerTable table(profile, samples, Factor{draw(1, 2'000'000'000)});
    for (std::int32_t cut = 0; cut <= count; ++cut) {
      Bytes expected;
      for (std::int32_t maker = 0; maker < cut; ++maker) {
        bool crosses = false;
        for (std::int32_t user = cut; user < count; ++user) {
          const auto& inputs = layers[static_cast<std::size_t>(user)].inputs;
          crosses |= std::count(inputs.begin(), inputs.end(), LayerIndex{maker}) > 0;
        }
        if (crosses) expected += output_size(layers[static_cast<std::size_t>(maker)], samples);
      }
      REQUIRE(table.boundary(cut) == expected);
      Bytes stash;
      for (std::int32_t layer = 0; layer < cut; ++layer) {
        stash += stash_size(layers[static_cast<std::size_t>(layer)], samples);
      }
      REQUIRE(table.stash({0, cut}) == stash);
    }
  }
}

}  // namespace
}  // namespace dapple
