// Profiles of several kinds of device, joined.

#include "dapple/profile/other_devices.h"

#include <catch2/catch.hpp>

#include "../../support/models.h"
#include "dapple/core/error.h"

namespace dapple {
namespace {

ModelProfile measured_on(const std::string& device, std::int64_t forward) {
  ModelProfile profile = small::model_of(
      {{.forward = forward, .backward = 2 * forward, .output = 8, .parameters = 4, .stash = 6},
       {.forward = 2 * forward, .backward = 3 * forward}});
  profile.device = device;
  profile.layers[0].fixed_overhead = Duration{1};
  profile.layers[0].variants = {{.parallelism = {.tensor = 2},
                                 .parameters = Bytes{2},
                                 .fixed_overhead = {},
                                 .measurements = profile.layers[1].measurements,
                                 .forward_collectives = {},
                                 .backward_collectives = {}}};
  return profile;
}

TEST_CASE("times of other kinds are added by the names of the kinds, without their sizes") {
  ModelProfile profile = measured_on("b", 10);
  add_other_device(profile, measured_on("c", 30));
  add_other_device(profile, measured_on("a", 20));
  CHECK(profile.device == "b");
  CHECK(profile.other_devices == std::vector<std::string>{"a", "c"});
  const Layer& first = profile.layers[0];
  CHECK(measurements_on(first, 0)[0].forward == Duration{10});
  CHECK(measurements_on(first, 1)[0].forward == Duration{20});
  CHECK(measurements_on(first, 2)[0].forward == Duration{30});
  CHECK(fixed_overhead_on(first, 1) == Duration{1});
  CHECK(measurements_on(first, 1)[0].output == Bytes{});
  CHECK(measurements_on(first, 0)[0].output == Bytes{8});
  REQUIRE(first.variants[0].other_times.size() == 2);
  CHECK(first.variants[0].other_times[1].measurements[0].backward == Duration{90});
}

TEST_CASE("a kind that a profile has is not added again, nor another model") {
  ModelProfile profile = measured_on("b", 10);
  CHECK_THROWS_AS(add_other_device(profile, measured_on("b", 20)), Bug);
  add_other_device(profile, measured_on("c", 30));
  CHECK_THROWS_AS(add_other_device(profile, measured_on("c", 30)), Bug);
  ModelProfile longer = measured_on("d", 10);
  longer.layers.push_back(longer.layers.back());
  CHECK_THROWS_AS(add_other_device(profile, longer), Bug);
  ModelProfile other_variant = measured_on("d", 10);
  other_variant.layers[0].variants[0].parallelism.tensor = 4;
  CHECK_THROWS_AS(add_other_device(profile, other_variant), Bug);
}

}  // namespace
}  // namespace dapple
