// How far the DAPPLE planner goes: every step keeps what those before it have found.

#include <catch2/catch.hpp>
#include <optional>

#include "../../../support/random_pipeline.h"
#include "../even_model.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple {
namespace {

using planner::DappleSteps;

/// Twelve layers that are not alike, whose boundaries and all-reduces take as long as they do.
ModelProfile uneven_model(small::Dice& dice) {
  std::vector<small::LayerFigures> layers;
  for (int i = 0; i < 12; ++i) {
    layers.push_back({.forward = dice.roll(10, 40),
                      .backward = dice.roll(20, 80),
                      .output = dice.roll(1, 60),
                      .parameters = dice.roll(0, 200)});
  }
  return small::model_of(layers);
}

planner::MadePlan made_in(DappleSteps steps, const ModelProfile& profile,
                          const Topology& topology) {
  planner::PlannerOptions options = small::batch(16);
  options.planner = PlannerKind::Dapple;
  options.baselines = false;
  planner::PlanningContext context{profile, topology, options};
  context.dapple_steps = steps;
  auto made = planner::make_plan(context);
  REQUIRE(std::holds_alternative<planner::MadePlan>(made));
  return std::get<planner::MadePlan>(std::move(made));
}

TEST_CASE("no step of the DAPPLE planner ends with a slower plan than the steps before it") {
  small::Dice dice(90217);
  int gains = 0;
  int wider = 0;
  for (int round = 0; round < 6; ++round) {
    const ModelProfile profile = uneven_model(dice);
    const Topology topology(small::cluster({.servers = 4, .devices = 2}));
    std::optional<planner::MadePlan> before;
    for (const DappleSteps steps : {DappleSteps::Opening, DappleSteps::NarrowSearch,
                                    DappleSteps::Searches, DappleSteps::All}) {
      INFO("instance " << round << ", steps " << static_cast<int>(steps));
      planner::MadePlan made = made_in(steps, profile, topology);
      const SearchRecord& search = made.document.search;
      CHECK((search.states == 0) == (steps == DappleSteps::Opening));
      if (before) {
        const Prediction& of_before = before->document.prediction;
        CHECK(search.states >= before->document.search.states);
        CHECK(search.simulated >= before->document.search.simulated);
        CHECK(made.document.prediction.iteration <= of_before.iteration);
        if (made.document.prediction.iteration < of_before.iteration) ++gains;
        if (steps == DappleSteps::Searches && search.states > before->document.search.states) {
          ++wider;
        }
      }
      before = std::move(made);
    }
  }
  CHECK(gains > 0);
  CHECK(wider > 0);
}

}  // namespace
}  // namespace dapple
