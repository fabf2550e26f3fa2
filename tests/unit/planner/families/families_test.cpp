// Plans over all schedule families.

#include <catch2/catch.hpp>

#include <algorithm>
#include <variant>

#include "../../../support/pipeline.h"

#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple::planner {
namespace {

using namespace small;

const ScheduleRecord& record_of(const MadePlan& made, ScheduleFamily family) {
  const auto& records = made.document.schedules;
  const auto found =
      std::find_if(records.begin(), records.end(),
                   [&](const ScheduleRecord& record) { return record.family == family; });
  REQUIRE(found != records.end());
  return *found;
}

PlannerOptions one_by_one(std::int64_t global_batch_size) {
  PlannerOptions options;
  options.global_batch_size = global_batch_size;
  options.micro_batch_size = 1;
  return options;
}

MadePlan plan_over_all(const ModelProfile& profile, const TopologyDescription& description,
                       std::int64_t global_batch_size) {
  PlannerOptions options = one_by_one(global_batch_size);
  options.every_family = true;
  auto made = make_plan({profile, Topology(description), options});
  REQUIRE(std::holds_alternative<MadePlan>(made));
  return std::get<MadePlan>(std::move(made));
}

TEST_CASE("the family that fills the bubble is chosen, and nothing is proven faster") {
  // Four layers on four devices, F = I = W = 2 and 8 micro-batches of one sample. 1F1B takes
  // (M + S - 1)(F + B) = 66. Whoever does the last layer cannot start before 3 F = 6 and has 48 to
  // do: 54, which H1 reaches; two layers on one device would be 96.
  const std::vector<LayerFigures> layers(4, {.forward = 2, .backward = 4, .parameters = 1});
  const MadePlan made = plan_over_all(model_of(layers), cluster({.servers = 1, .devices = 4}), 8);
  const PlanDocument& document = made.document;
  CHECK(document.plan.family == ScheduleFamily::ZeroBubbleH1);
  CHECK(document.prediction.iteration.ns == 54);
  CHECK(document.prediction.lower_bound == Duration{54});
  CHECK(document.prediction.optimality_gap == 0.0);
  CHECK(record_of(made, ScheduleFamily::OneFOneB).iteration == Duration{66});
  CHECK(record_of(made, ScheduleFamily::OneFOneB).lower_bound == Duration{66});
  // Its bound is that of 1F1B, which was the best until then: it was not searched.
  CHECK(record_of(made, ScheduleFamily::ListScheduled).lower_bound == Duration{66});
  CHECK_FALSE(record_of(made, ScheduleFamily::ListScheduled).iteration.has_value());
  CHECK(record_of(made, ScheduleFamily::ZeroBubbleH1).reason == "this plan; none is faster");
  CHECK(document.search.cut == std::vector<std::string>{"micro-batch size: only 1, as asked"});
}

TEST_CASE("a limit on the time leaves the families what the first of them does not get") {
  // As above; 1F1B is told to end at once, the others are not.
  class FirstEnds : public Progress {
   public:
    void update(const SearchProgress& /*progress*/) override {}
    bool should_end_part(double /*part*/) override { return true; }
  } progress;
  const std::vector<LayerFigures> layers(4, {.forward = 2, .backward = 4, .parameters = 1});
  PlannerOptions options = one_by_one(8);
  options.every_family = true;
  const auto result = make_plan(
      {model_of(layers), Topology(cluster({.servers = 1, .devices = 4})), options, &progress});
  REQUIRE(std::holds_alternative<MadePlan>(result));
  const MadePlan& made = std::get<MadePlan>(result);
  CHECK(made.document.plan.family == ScheduleFamily::ZeroBubbleH1);
  CHECK(made.document.prediction.iteration.ns == 54);
}

TEST_CASE("on one device no family is faster, and none is searched") {
  const MadePlan made = plan_over_all(
      model_of({{.forward = 2, .backward = 4, .parameters = 1}, {.forward = 3, .backward = 5}}),
      cluster({.servers = 1, .devices = 1}), 4);
  CHECK(made.document.plan.family == ScheduleFamily::OneFOneB);
  CHECK(made.document.prediction.iteration.ns == 4 * 14);
  for (const ScheduleRecord& record : made.document.schedules) {
    CHECK(record.lower_bound == Duration{4 * 14});
    CHECK(record.iteration.has_value() == (record.family == ScheduleFamily::OneFOneB));
  }
}

TEST_CASE("a model that fits only where a device holds stages apart is planned so") {
  // Parameters and gradients of 30, 30, 10 and 10 bytes, twice; a device has room for 85 bytes. Of
  // any two stages in a row one has 60 + 60 or 60 + 20 + 20 bytes at least; in turns a device has
  // 60 + 20.
  ModelProfile profile = model_of({{.forward = 2, .backward = 4, .parameters = 30},
                                   {.forward = 2, .backward = 4, .parameters = 30},
                                   {.forward = 2, .backward = 4, .parameters = 10},
                                   {.forward = 2, .backward = 4, .parameters = 10}});
  TopologyDescription description = cluster({.servers = 1, .devices = 2});
  description.devices.front().memory = {85};
  PlannerOptions options = one_by_one(4);
  const auto alone = make_plan({profile, Topology(description), options});
  CHECK(std::holds_alternative<Infeasible>(alone));
  const MadePlan made = plan_over_all(profile, description, 4);
  CHECK(made.document.plan.chunks_per_device == 2);
  CHECK(made.evaluation.shortages.empty());
  const ScheduleRecord& h1 = record_of(made, ScheduleFamily::ZeroBubbleH1);
  CHECK_FALSE(h1.iteration.has_value());
  CHECK_FALSE(h1.lower_bound.has_value());
  CHECK(h1.missing.count > 0);
  CHECK(record_of(made, ScheduleFamily::OneFOneB).missing == h1.missing);
  CHECK(h1.reason == "no plan of it fits memory");
  CHECK(made.document.prediction.lower_bound <= made.document.prediction.iteration);

  options.family = ScheduleFamily::ZeroBubbleH2;
  CHECK(std::holds_alternative<Infeasible>(make_plan({profile, Topology(description), options})));
}

}  // namespace
}  // namespace dapple::planner
