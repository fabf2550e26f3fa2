// What holds for any plan under any other schedule.

#include <catch2/catch.hpp>

#include <variant>

#include "../support/families.h"
#include "../support/random_pipeline.h"
#include "dapple/plan/validate.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/simulate/device_memory.h"

namespace dapple {
namespace {

using namespace small;

planner::Reschedule to(ScheduleFamily family, Contention contention,
                       Replicas replicas = Replicas::Together) {
  return {.family = family,
          .chunks_per_device = has_loops(family) ? 2 : 1,
          .contention = contention,
          .replicas = replicas,
          .evaluations = 300};
}

TEST_CASE("whatever the schedule, the plan is sound and never faster than its order's bound") {
  Dice dice(51);
  int made = 0;
  int proven = 0;
  for (int i = 0; i < scaled(600); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true});
    const Replicas replicas = i % 3 == 0 ? Replicas::Independent : Replicas::Together;
    INFO("instance " << i << ": " << text_of(pipeline));
    const ScheduleFamily family = random_own_family(dice);
    const Contention contention = dice.chance(50) ? Contention::Shared : Contention::Off;
    INFO(to_string(family) << ", contention " << to_string(contention) << ", replicas "
                           << to_string(replicas));
    const auto result = planner::reschedule(pipeline.plan, pipeline.profile, pipeline.topology,
                                            to(family, contention, replicas));
    const auto* rescheduled = std::get_if<planner::Rescheduled>(&result);
    if (rescheduled == nullptr) continue;
    ++made;
    const Plan& plan = rescheduled->plan;
    REQUIRE(
        validate(plan, static_cast<std::int32_t>(pipeline.profile.layers.size()), pipeline.topology)
            .empty());
    REQUIRE(validate(generate(plan), plan).empty());
    const Duration iteration = rescheduled->evaluation.prediction.iteration;
    REQUIRE(rescheduled->lower_bound.has_value() == carries_order(family));
    if (rescheduled->lower_bound) REQUIRE(*rescheduled->lower_bound <= iteration);
    if (rescheduled->lower_bound == iteration) ++proven;
    // No device does less than its own work.
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      for (const ReplicaCost& cost : rescheduled->evaluation.costs.stages[s].replicas) {
        REQUIRE(iteration >= plan.num_micro_batches * (cost.forward + cost.backward));
      }
    }
    if (carries_order(family)) REQUIRE(rescheduled->evaluation.shortages.empty());
  }
  CHECK(made > scaled(375));
  CHECK(proven > 0);
}

Duration time_of(const std::variant<planner::Rescheduled, planner::NoSchedule>& result) {
  return std::get<planner::Rescheduled>(result).evaluation.prediction.iteration;
}

TEST_CASE("more orders tried never make the plan slower") {
  Dice dice(57);
  int improved = 0;
  for (int i = 0; i < scaled(120); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true});
    const ScheduleFamily family =
        dice.chance(50) ? ScheduleFamily::ZeroBubbleV : random_own_family(dice);
    if (!carries_order(family)) continue;
    const Contention contention = dice.chance(50) ? Contention::Shared : Contention::Off;
    INFO("instance " << i << ", " << to_string(family) << ": " << text_of(pipeline));
    planner::Reschedule options = to(family, contention);
    std::optional<Duration> before;
    for (const std::int64_t orders : {1, 3, 10, 30, 100, 150, 300, 700, 1300}) {
      options.evaluations = orders;
      const auto result =
          planner::reschedule(pipeline.plan, pipeline.profile, pipeline.topology, options);
      if (std::holds_alternative<planner::NoSchedule>(result)) break;
      const Duration time = time_of(result);
      INFO(orders << " orders");
      if (before) REQUIRE(time <= *before);
      if (before && time < *before) ++improved;
      before = time;
    }
  }
  CHECK(improved > 0);
}

TEST_CASE("a 1F1B plan under 1F1B is no slower than it was, and keeps its depths if as fast") {
  Dice dice(58);
  int kept = 0;
  for (int i = 0; i < scaled(300); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true});
    if (pipeline.plan.family != ScheduleFamily::OneFOneB) continue;
    const Contention contention = dice.chance(50) ? Contention::Shared : Contention::Off;
    INFO("instance " << i << ": " << text_of(pipeline));
    Plan given = pipeline.plan;
    const planner::Evaluation own = planner::evaluate(given, pipeline.profile, pipeline.topology,
                                                      {contention, Replicas::Together});
    if (!own.shortages.empty()) continue;
    const auto result = planner::reschedule(pipeline.plan, pipeline.profile, pipeline.topology,
                                            to(ScheduleFamily::OneFOneB, contention));
    REQUIRE(time_of(result) <= own.prediction.iteration);
    if (time_of(result) < own.prediction.iteration) continue;
    ++kept;
    REQUIRE(std::get<planner::Rescheduled>(result).plan.warmup_depths ==
            pipeline.plan.warmup_depths);
  }
  CHECK(kept > 0);
}

TEST_CASE("a plan that deals micro-batches comes under other schedules, or it is said why not") {
  Dice dice(53);
  int made = 0;
  int refused = 0;
  for (int i = 0; i < scaled(400); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.deal = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    const ScheduleFamily family = random_own_family(dice);
    INFO(to_string(family));
    const auto result = planner::reschedule(pipeline.plan, pipeline.profile, pipeline.topology,
                                            to(family, Contention::Off));
    if (std::holds_alternative<planner::NoSchedule>(result)) {
      ++refused;
      continue;
    }
    ++made;
    const Plan& plan = std::get<planner::Rescheduled>(result).plan;
    REQUIRE(
        validate(plan, static_cast<std::int32_t>(pipeline.profile.layers.size()), pipeline.topology)
            .empty());
    REQUIRE(validate(generate(plan), plan).empty());
  }
  CHECK(made > scaled(40));
  CHECK(refused > scaled(40));
}

TEST_CASE("an order of the costs' own is mostly no slower than 1F1B within the same memory") {
  Dice dice(52);
  int compared = 0;
  int slower = 0;
  for (int i = 0; i < scaled(200); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {});
    const auto under = [&](ScheduleFamily family) {
      return planner::reschedule(pipeline.plan, pipeline.profile, pipeline.topology,
                                 to(family, Contention::Off));
    };
    const auto fixed = under(ScheduleFamily::OneFOneB);
    const auto listed = under(ScheduleFamily::ListScheduled);
    if (!std::holds_alternative<planner::Rescheduled>(fixed)) continue;
    // At least 1F1B's own order fits wherever 1F1B does.
    REQUIRE(std::holds_alternative<planner::Rescheduled>(listed));
    ++compared;
    const auto time_of = [](const auto& result) {
      return std::get<planner::Rescheduled>(result).evaluation.prediction.iteration;
    };
    if (time_of(listed) > time_of(fixed)) ++slower;
  }
  CHECK(compared > scaled(150));
  CHECK(slower * 5 < compared);
}

}  // namespace
}  // namespace dapple
