// Orders that the planner made, written as text and read again.

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../support/pipeline.h"
#include "dapple/interop/plans/given_order.h"
#include "dapple/planner/families/reschedule.h"

namespace dapple {
namespace {

using namespace small;

planner::Rescheduled made_under(const Pipeline& pipeline, const planner::Reschedule& options) {
  auto made = planner::reschedule(pipeline.plan, pipeline.profile, pipeline.topology, options);
  REQUIRE(std::holds_alternative<planner::Rescheduled>(made));
  return std::get<planner::Rescheduled>(std::move(made));
}

TEST_CASE("a given order takes what it takes elsewhere") {
  const Pipeline pipeline = straight(
      std::vector<LayerFigures>(3, {.forward = 2, .backward = 4, .parameters = 1, .stash = 10}),
      {.num_micro_batches = 4, .depths = {3, 2, 1}});
  const planner::Rescheduled h1 = made_under(pipeline, {.family = ScheduleFamily::ZeroBubbleH1});
  const std::string text = to_text(generate(h1.plan), pipeline.topology);
  const std::vector<std::vector<Action>> order =
      interop::read_order(text, "order", pipeline.plan, pipeline.topology);
  CHECK(order == h1.plan.order);
  const planner::Rescheduled again =
      made_under(pipeline, {.family = ScheduleFamily::Given, .order = order});
  CHECK(again.evaluation.prediction.iteration == h1.evaluation.prediction.iteration);
}

/// What the plan's own order takes when it is given.
planner::Rescheduled given_again(const Plan& plan, const Pipeline& pipeline) {
  const std::string text = to_text(generate(plan), pipeline.topology);
  const auto order = interop::read_order(text, "order", plan, pipeline.topology);
  auto made = planner::reschedule(plan, pipeline.profile, pipeline.topology,
                                  {.family = ScheduleFamily::Given,
                                   .chunks_per_device = plan.chunks_per_device,
                                   .order = order});
  REQUIRE(std::holds_alternative<planner::Rescheduled>(made));
  return std::get<planner::Rescheduled>(std::move(made));
}

TEST_CASE("a plan's own order can be given again, whatever its family") {
  // Two layers on each of three devices.
  const Pipeline pipeline{model_of(std::vector<LayerFigures>(
                              6, {.forward = 2, .backward = 4, .parameters = 1, .stash = 10})),
                          cluster({.devices = 3}),
                          PlanShape{.num_micro_batches = 6,
                                    .depths = {3, 2, 1},
                                    .stages = {{.layers = 2, .devices = {0}},
                                               {.layers = 2, .devices = {1}},
                                               {.layers = 2, .devices = {2}}}}};
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (family == ScheduleFamily::Given) continue;
    INFO(to_string(family));
    const bool loops = has_loops(family);
    const planner::Rescheduled own = made_under(
        pipeline, {.family = family, .chunks_per_device = loops ? 2 : 1, .evaluations = 50});
    const planner::Rescheduled again = given_again(own.plan, pipeline);
    REQUIRE(again.plan.stages.size() == own.plan.stages.size());
    for (std::size_t s = 0; s < own.plan.stages.size(); ++s) {
      CHECK(again.plan.stages[s].layers == own.plan.stages[s].layers);
      CHECK(again.plan.stages[s].devices == own.plan.stages[s].devices);
    }
    CHECK(again.evaluation.prediction.iteration == own.evaluation.prediction.iteration);
  }
}

}  // namespace
}  // namespace dapple
