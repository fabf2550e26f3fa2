#include "dapple/planner/candidates/depth_search.h"

#include <catch2/catch.hpp>

#include "../../../support/random_pipeline.h"

namespace dapple {
namespace {

TEST_CASE("a depth search that is told to stop goes on later where it was") {
  // Under GPipe there is one depth vector, so the first step is its simulation, which asks whether
  // to stop every 4096 events: 2000 micro-batches on two stages have more.
  const small::Pipeline pipeline = small::straight(
      {{.forward = 10, .backward = 20, .output = 4}, {.forward = 10, .backward = 20}},
      {.num_micro_batches = 2000, .depths = {2, 1}});
  planner::PlannerOptions options;
  options.family = ScheduleFamily::GPipe;
  planner::SimulatedPlan start{.plan = pipeline.plan};
  start.plan.family = ScheduleFamily::GPipe;
  start.plan.warmup_depths.clear();
  int answers_left = 0;  // until it says stop
  planner::DepthSearch search(start, CostModel(pipeline.profile, pipeline.topology), options,
                              [&] { return answers_left-- <= 0; });
  const planner::DepthSearch::SearchBudget unlimited{.enough = Duration::infinite(),
                                                     .actions = 1'000'000};
  const planner::Score before = search.advance(Duration::infinite(), unlimited);
  CHECK(before.simulated == 0);
  CHECK_FALSE(before.is_settled);
  answers_left = 1;
  const planner::Score abandoned = search.advance(Duration::infinite(), unlimited);
  CHECK(abandoned.simulated == 1);
  CHECK_FALSE(abandoned.best.feasible());
  CHECK_FALSE(abandoned.is_settled);
  answers_left = 1000;
  const planner::Score through = search.advance(Duration::infinite(), unlimited);
  CHECK(through.is_settled);
  CHECK(through.best.feasible());
  CHECK(through.bound == through.best.iteration);
}

}  // namespace
}  // namespace dapple
