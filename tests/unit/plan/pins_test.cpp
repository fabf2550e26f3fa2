#include "dapple/plan/pins.h"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace dapple;

TEST_CASE("pins are told as the command line takes them") {
  ModelProfile profile;
  for (int i = 0; i < 5; ++i) profile.layers.emplace_back().name = "layer" + std::to_string(i);
  CHECK(to_texts({}, profile).empty());
  const Pins pins{.stages = 3, .replicas = 2, .recompute = true, .cuts = {1, 4}, .joints = {2}};
  CHECK(to_texts(pins, profile) == std::vector<std::string>{"stages=3", "replicas=2",
                                                            "recompute=on", "cut=layer1",
                                                            "cut=layer4", "join=layer2"});
}

TEST_CASE(
    "a stage is allowed by pins where it has their replicas, their recomputation and no cut") {
  const Pins pins{.stages = {}, .replicas = 2, .recompute = false, .cuts = {2}, .joints = {4}};
  CHECK(pins.allow({0, 2}, 2, false));
  CHECK(pins.allow({2, 5}, 2, false));
  CHECK_FALSE(pins.allow({0, 2}, 1, false));
  CHECK_FALSE(pins.allow({0, 2}, 2, true));
  CHECK_FALSE(pins.allow({1, 3}, 2, false));
  CHECK_FALSE(pins.allow({2, 4}, 2, false));
  CHECK_FALSE(pins.allow({4, 5}, 2, false));
}
