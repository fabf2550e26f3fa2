#include "dapple/planner/candidates/jitter.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "../../../support/pipeline.h"

namespace dapple {
namespace {

TEST_CASE("a percentile is the smallest time that so many percent do not exceed") {
  const std::vector<Duration> times{{50}, {10}, {40}, {20}, {30}};
  // 50 % of five is 2.5: three times do not exceed 30. 20 % is one, 95 % is 4.75.
  CHECK(planner::percentile(times, 50) == Duration{30});
  CHECK(planner::percentile(times, 20) == Duration{10});
  CHECK(planner::percentile(times, 21) == Duration{20});
  CHECK(planner::percentile(times, 95) == Duration{50});
  CHECK(planner::percentile({Duration{7}}, 1) == Duration{7});
}

TEST_CASE(
    "a slower device costs what its stage computes, and the worst stage is the first of these") {
  // One micro-batch goes through both stages and back: (10 + 20) + (30 + 60). A tenth of 30 or of
  // 90 more. Nothing is sent.
  const small::Pipeline pipeline =
      small::straight({{.forward = 10, .backward = 20}, {.forward = 30, .backward = 60}},
                      {.num_micro_batches = 1, .depths = {1, 1}});
  const planner::ReadyPlan plan{pipeline.schedule, pipeline.costs, pipeline.topology, {}};
  JitterFigures figures;
  figures.with_slow_device = planner::with_slow_devices(plan, 1);
  CHECK(figures.with_slow_device == std::vector<Duration>{{123}, {129}});
  CHECK(figures.worst_stage() == StageIndex{1});
  figures.with_slow_device = {{9}, {9}, {8}};
  CHECK(figures.worst_stage() == StageIndex{0});
}

TEST_CASE("draws are those of the seed, the first ones of a longer sample are the same") {
  const small::Pipeline pipeline =
      small::straight({{.forward = 1000, .backward = 2000}, {.forward = 1000, .backward = 2000}},
                      {.num_micro_batches = 4, .depths = {2, 1}});
  const planner::ReadyPlan plan{pipeline.schedule, pipeline.costs, pipeline.topology, {}};
  const JitterRequest request{.deviation = {kOne.billionths / 10}, .seed = 7};
  const std::vector<Duration> few = planner::drawn_iterations(plan, 20, request, 1);
  const std::vector<Duration> many = planner::drawn_iterations(plan, 50, request, 3);
  CHECK(std::equal(few.begin(), few.end(), many.begin()));
  CHECK(planner::drawn_iterations(plan, 20, {request.deviation, 8}, 1) != few);
  CHECK(planner::drawn_iterations(plan, 20, {{}, 8}, 1) ==
        std::vector<Duration>(20, pipeline.run({.record = false}).iteration));
}

}  // namespace
}  // namespace dapple
