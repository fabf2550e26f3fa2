#include "dapple/planner/candidates/score.h"

#include <catch2/catch.hpp>

#include "../../../support/random_pipeline.h"

namespace dapple {
namespace {

TEST_CASE("a simulation that a bound makes superfluous counts for as much work as any other") {
  small::Dice dice(7351);
  for (int round = 0; round < small::scaled(60); ++round) {
    const small::Pipeline pipeline =
        small::random_pipeline(dice, {.deal = dice.chance(30), .crowded = dice.chance(50)});
    INFO("instance " << round << ": " << small::text_of(pipeline));
    const SimulationMode mode{.contention = dice.chance(50) ? Contention::Shared : Contention::Off};
    const search::BoundedPlan bounded{pipeline.plan, pipeline.costs, pipeline.topology, mode};
    planner::Score simulated;
    CHECK_FALSE(planner::simulate_and_count(bounded, simulated).is_infinite());
    planner::Score bound_alone;
    planner::count_unsimulated(bounded, bound_alone);
    CHECK(bound_alone.actions == simulated.actions);
    CHECK(bound_alone.actions > 0);
    CHECK(simulated.simulated == 1);
    CHECK(bound_alone.simulated == 0);
  }
}

}  // namespace
}  // namespace dapple
