#include <catch2/catch.hpp>

#include <string>
#include <variant>
#include <vector>

#include "../../../support/pipeline.h"
#include "dapple/planner/families/reschedule.h"

namespace dapple::planner {
namespace {

using namespace small;

/// `groups` devices without transfers, `chunks` equal layers for each, a stage per device; a layer
/// takes 2 forward and 4 backward, 2 of them for its input's gradient.
Pipeline uniform(std::int32_t groups, std::int32_t chunks, std::int64_t micro_batches,
                 std::int64_t memory = kMaxCount) {
  const LayerFigures layer{.forward = 2, .backward = 4, .parameters = 1, .stash = 10};
  PlanShape shape{.num_micro_batches = micro_batches};
  for (std::int32_t s = 0; s < groups; ++s) {
    shape.stages.push_back({.layers = chunks, .devices = {s}});
    shape.depths.push_back(std::min<std::int64_t>(groups - s, micro_batches));
  }
  const auto layers = static_cast<std::size_t>(groups * chunks);
  TopologyDescription description = cluster({.devices = groups});
  description.devices.front().memory = {memory};
  return {model_of(std::vector<LayerFigures>(layers, layer)), std::move(description), shape};
}

std::variant<Rescheduled, NoSchedule> under(const Pipeline& pipeline, const Reschedule& options) {
  return reschedule(pipeline.plan, pipeline.profile, pipeline.topology, options);
}

Rescheduled made_under(const Pipeline& pipeline, const Reschedule& options) {
  auto result = under(pipeline, options);
  REQUIRE(std::holds_alternative<Rescheduled>(result));
  Rescheduled made = std::get<Rescheduled>(std::move(result));
  CHECK(check_plan(made.plan, pipeline.profile, pipeline.topology).empty());
  return made;
}

std::int64_t iteration_of(const Rescheduled& made) {
  return made.evaluation.prediction.iteration.ns;
}

TEST_CASE("zero bubble schedules shorten a uniform pipeline as theory says") {
  // Four stages of F = 2, I = 2, W = 2 and 8 micro-batches: 48 of work on each device. 1F1B's
  // bubble is (S - 1)(F + B) = 18, that of H1 (S - 1)(F + I - W) = 6, where every device holds as
  // many micro-batches as 1F1B's first.
  const Pipeline pipeline = uniform(4, 1, 8);
  CHECK(pipeline.run().iteration.ns == 48 + 18);
  CHECK(iteration_of(made_under(pipeline, {.family = ScheduleFamily::OneFOneB})) == 48 + 18);
  CHECK(iteration_of(made_under(pipeline, {.family = ScheduleFamily::GPipe})) == 48 + 18);
  const Rescheduled h1 = made_under(pipeline, {.family = ScheduleFamily::ZeroBubbleH1});
  CHECK(iteration_of(h1) == 48 + 6);
  CHECK(h1.plan.warmup_depths == std::vector<std::int64_t>{4, 4, 4, 4});
  REQUIRE(h1.lower_bound.has_value());
  CHECK(h1.lower_bound->ns == 48 + 6);
  const Rescheduled h2 = made_under(pipeline, {.family = ScheduleFamily::ZeroBubbleH2});
  CHECK(iteration_of(h2) <= iteration_of(h1));
  CHECK(h2.lower_bound <= h1.lower_bound);
}

TEST_CASE("looped schedules cut the stages anew and divide the bubble") {
  // Four devices with two layers each: F = 4, B = 8, bubble 3 * 12 = 36, with two chunks 18.
  const Pipeline pipeline = uniform(4, 2, 8);
  CHECK(pipeline.run().iteration.ns == 8 * 12 + 36);
  for (const ScheduleFamily family : {ScheduleFamily::Interleaved, ScheduleFamily::BreadthFirst}) {
    const Rescheduled made = made_under(pipeline, {.family = family, .chunks_per_device = 2});
    REQUIRE(made.plan.stages.size() == 8);
    CHECK(made.plan.stages[5].layers == LayerRange{5, 6});
    CHECK(made.plan.stages[5].devices == std::vector{DeviceIndex{1}});
    CHECK(iteration_of(made) == 8 * 12 + 18);
    CHECK_FALSE(made.lower_bound.has_value());
  }
}

TEST_CASE("a V goes there and back again within 1F1B's memory") {
  const Pipeline pipeline = uniform(3, 2, 6);
  const Rescheduled made =
      made_under(pipeline, {.family = ScheduleFamily::ZeroBubbleV, .chunks_per_device = 2});
  REQUIRE(made.plan.stages.size() == 6);
  for (std::size_t s = 0; s < 6; ++s) {
    CHECK(made.plan.stages[s].devices == made.plan.stages[5 - s].devices);
  }
  // 1F1B's bubble is 2 * 12; a device holds no more than the first one did: 3 of two layers' 10.
  CHECK(iteration_of(made) < pipeline.run().iteration.ns);
  for (const DeviceMemory& memory : made.evaluation.timeline.memory) {
    CHECK(peak_memory(made.evaluation.timeline, memory).count <= memory.fixed.count + 3 * 20);
  }
  REQUIRE(made.lower_bound.has_value());
  CHECK(*made.lower_bound <= made.evaluation.prediction.iteration);
}

TEST_CASE("what memory keeps from 1F1B's depths an order of its own makes up for") {
  // Room for two micro-batches on every device, where the first wants four.
  const Pipeline pipeline = uniform(4, 1, 8, 2 + 2 * 10);
  const Rescheduled fixed = made_under(pipeline, {.family = ScheduleFamily::OneFOneB});
  const Rescheduled listed = made_under(pipeline, {.family = ScheduleFamily::ListScheduled});
  CHECK(fixed.plan.warmup_depths.front() == 2);
  CHECK(iteration_of(listed) < iteration_of(fixed));
  for (const std::int64_t depth : listed.plan.warmup_depths) CHECK(depth <= 2);
  CHECK(*listed.lower_bound <= listed.evaluation.prediction.iteration);
}

TEST_CASE("why there is no schedule is said") {
  const auto reason = [](const Pipeline& pipeline, const Reschedule& options) {
    const auto result = under(pipeline, options);
    const auto* none = std::get_if<NoSchedule>(&result);
    REQUIRE(none != nullptr);
    return none->reason;
  };
  const auto first_fault = [&](const Pipeline& pipeline, const Reschedule& options) {
    const auto plan = std::get<PlanFaults>(reason(pipeline, options));
    const Violation& first = plan.faults.front();
    return first.place + ": " + first.message;
  };
  const auto few = std::get<TooFewLayers>(
      reason(uniform(3, 1, 6), {.family = ScheduleFamily::Interleaved, .chunks_per_device = 2}));
  CHECK(few.stages == 6);
  CHECK(few.layers == 3);
  CHECK(first_fault(uniform(3, 2, 4),
                    {.family = ScheduleFamily::Interleaved, .chunks_per_device = 2}) ==
        "/num_micro_batches: expected a multiple of 3, the groups of devices that take turns, got "
        "4");
  CHECK(std::holds_alternative<NoOrderFits>(
      reason(uniform(2, 1, 2, 11), {.family = ScheduleFamily::ZeroBubbleH1})));
  CHECK(first_fault(uniform(2, 1, 1),
                    {.family = ScheduleFamily::Given,
                     .order = {parse_actions("0F0 0B0"), parse_actions("1B0 1F0")}}) ==
        "stage 1: 1B0 stands before 1F0: a backward needs what its forward kept");
}

}  // namespace
}  // namespace dapple::planner
