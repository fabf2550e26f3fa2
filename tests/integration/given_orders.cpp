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

Rescheduled made_under(const Pipeline& pipeline, const Reschedule& options) {
  auto made = reschedule(pipeline.plan, pipeline.profile, pipeline.topology, options);
  if (const auto* none = std::get_if<NoSchedule>(&made)) FAIL(none->reasons.front());
  return std::get<Rescheduled>(std::move(made));
}

TEST_CASE("a given order takes what it takes elsewhere") {
  const Pipeline pipeline = straight(
      std::vector<LayerFigures>(3, {.forward = 2, .backward = 4, .parameters = 1, .stash = 10}),
      {.num_micro_batches = 4, .depths = {3, 2, 1}});
  const Rescheduled h1 = made_under(pipeline, {.family = ScheduleFamily::ZeroBubbleH1});
  const std::string text = to_text(generate(h1.plan), pipeline.topology);
  const std::vector<std::vector<Action>> order =
      read_order(text, "order", pipeline.plan, pipeline.topology);
  CHECK(order == h1.plan.order);
  const Rescheduled again = made_under(pipeline, {.family = ScheduleFamily::Given, .order = order});
  CHECK(again.evaluation.prediction.iteration == h1.evaluation.prediction.iteration);
}

}  // namespace
}  // namespace dapple
