// Figures of a profile that can hardly be right.
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "dapple/profile/doubts.h"

namespace dapple {
namespace {

Measurement measured(std::int64_t batch, std::int64_t time, std::int64_t size) {
  Measurement point;
  point.batch_size = batch;
  point.forward = {time};
  point.backward = {2 * time};
  point.output = {size};
  point.stash = {size};
  return point;
}

ModelProfile profile_of(const std::vector<std::vector<Measurement>>& layers) {
  ModelProfile profile;
  profile.batch_scaling = BatchScaling::Proportional;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    Layer& layer = profile.layers.emplace_back();
    layer.name = "layer." + std::to_string(l);
    layer.measurements = layers[l];
  }
  return profile;
}

using Doubts = std::vector<std::string>;

TEST_CASE("a layer above a second a sample is doubted") {
  // 4 samples: 4 s forward and backward together are a second each.
  CHECK(doubts_about(profile_of({{measured(4, 1'333'333'333, 8)}})).empty());
  CHECK(doubts_about(profile_of({{measured(4, 10'000'000'000, 8)},
                                 {measured(1, 1'000'000, 8)},
                                 {measured(1, 400'000'000, 8)}})) ==
        Doubts{"layers above a second a sample: layer.0 takes 7.5 s for a sample, forward and "
               "backward, and 1 other layer likewise; is the unit of times right? (--time-unit of "
               "import model says another)"});
}

TEST_CASE("times that fall as the batch grows are doubted, beyond a twentieth") {
  CHECK(doubts_about(profile_of({{measured(1, 100, 8), measured(2, 95, 16)}})).empty());
  CHECK(doubts_about(profile_of({{measured(1, 100, 8), measured(2, 94, 16), measured(4, 90, 32)},
                                 {measured(1, 100, 8), measured(2, 200, 16)}})) ==
        Doubts{"times that fall as the batch grows: layer.0 forward takes 100 ns for 1 sample and "
               "94 ns for 2; plans lean on what was measured amiss"});
  // A backward alone.
  std::vector<Measurement> layer{measured(1, 100, 8), measured(2, 100, 16)};
  layer[1].backward = {150};
  CHECK(doubts_about(profile_of({layer})).front().find("layer.0 backward takes 200 ns") !=
        std::string::npos);
}

TEST_CASE("send-receives beside a core without times are doubted") {
  ModelProfile profile = profile_of({{measured(1, 100, 8)}, {measured(1, 100, 8)}});
  const Collective beside{.kind = CollectiveKind::SendReceive,
                          .over = CollectiveMembers::Context,
                          .size_per_sample = {8},
                          .beside = Beside::BackwardCore};
  for (Layer& layer : profile.layers) {
    LayerVariant& variant = layer.variants.emplace_back();
    variant.parallelism.context = 2;
    variant.measurements = layer.measurements;
    variant.backward_collectives = {beside};
  }
  const std::string lacking =
      "send-receives beside a core of attention that takes no time: layer.0 states no "
      "backward_core_ns";
  CHECK(doubts_about(profile) ==
        Doubts{lacking + ", and 1 other layer likewise; nothing of them is hidden"});
  profile.layers[1].variants.front().measurements.front().core.backward = {50};
  CHECK(doubts_about(profile) == Doubts{lacking + "; nothing of them is hidden"});
  profile.layers[0].variants.front().measurements.front().core.backward = {50};
  CHECK(doubts_about(profile).empty());
}

TEST_CASE("sizes that the largest batch does not tell are doubted, beyond a twentieth") {
  CHECK(doubts_about(profile_of({{measured(1, 10, 100), measured(4, 40, 396)}})).empty());
  // Whole bytes: 3 of 10 for 3 samples are 1.
  CHECK(doubts_about(profile_of({{measured(1, 10, 4), measured(3, 40, 10)}})).empty());
  CHECK(doubts_about(profile_of({{measured(1, 10, 100), measured(4, 40, 300)}})) ==
        Doubts{"sizes that do not grow in proportion to the batch: the output of layer.0 is 100 "
               "bytes for 1 sample and 300 for 4; those of the largest batch that was measured are "
               "used for all, in proportion"});
}

TEST_CASE("what whoever made the profile says comes first") {
  ModelProfile profile = profile_of({{measured(1, 2'000'000'000, 8)}});
  profile.warnings = {"measured in a storm"};
  const Doubts doubts = doubts_about(profile);
  REQUIRE(doubts.size() == 2);
  CHECK(doubts.front() == "measured in a storm");
}

}  // namespace
}  // namespace dapple
