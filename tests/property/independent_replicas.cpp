// Independent replicas against replicas that start together.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <tuple>

#include "../support/random_pipeline.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/bounds/earliest_start_bound.h"
#include "dapple/timeline/statistics.h"

namespace dapple {
namespace {

using namespace small;

constexpr Contention kModes[] = {Contention::Shared, Contention::Off};

using ActionKey = std::tuple<StageIndex, ActionKind, std::int32_t>;

/// Of a timeline's actions, those that several lanes have apart.
std::map<ActionKey, std::vector<TimedAction>> by_action(const Timeline& timeline) {
  std::map<ActionKey, std::vector<TimedAction>> actions;
  for (const TimedAction& timed : timeline.actions) {
    const Action& action = timed.action;
    actions[{action.stage, action.kind, action.index}].push_back(timed);
  }
  return actions;
}

bool is_computation(const TimedAction& timed) {
  return stream_of(timed.action.kind) == Stream::Compute;
}

/// Every stage on one, two or four devices of one switch, shares all alike.
Pipeline in_step(Dice& dice) {
  const Ranges ranges = random_ranges(dice);
  PlanShape shape{.micro_batch_size = 4 * dice.roll(1, 3),
                  .num_micro_batches = dice.roll(1, 6),
                  .bucket_size = {dice.roll(1, 2 * ranges.bytes)}};
  ModelProfile model = random_model(dice, ranges);
  for (Layer& layer : model.layers) layer.fixed_overhead = {};
  const auto layers = static_cast<std::int64_t>(model.layers.size());
  const std::int64_t stages = dice.roll(1, std::min<std::int64_t>(layers, 3));
  constexpr std::int64_t kReplicas[] = {1, 2, 4};
  std::int32_t device = 0;
  for (std::int64_t s = 0; s < stages; ++s) {
    const bool is_last = s + 1 == stages;
    StageShape& stage = shape.stages.emplace_back();
    stage.layers = static_cast<std::int32_t>(is_last ? layers - s : 1);
    stage.recompute = dice.chance(25);
    for (std::int64_t r = kReplicas[dice.roll(0, 2)]; r > 0; --r) stage.devices.push_back(device++);
  }
  shape.depths = random_depths(dice, shape.stages.size(), shape.num_micro_batches);
  TopologyDescription description =
      cluster({.devices = device, .inside = random_link(dice, ranges)});
  description.overlap_slowdown = Factor{dice.chance(50) ? 1'000'000'000 : 1'500'000'000};
  return {std::move(model), std::move(description), shape};
}

TEST_CASE("one replica per stage: both ways are one") {
  Dice dice(61);
  int plans = 0;
  for (int i = 0; i < scaled(3000); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .deal = true});
    if (splits_micro_batches(pipeline.plan)) continue;
    ++plans;
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const Contention contention : kModes) {
      const simulate::SimulationResult together = pipeline.run(contention);
      const simulate::SimulationResult apart = pipeline.run_apart({.contention = contention});
      REQUIRE(together.events == apart.events);
      REQUIRE(by_action(together.timeline).size() == by_action(apart.timeline).size());
      REQUIRE(together.iteration == apart.iteration);
    }
    const search::BoundedPlan alone{pipeline.plan,
                                    pipeline.costs,
                                    pipeline.topology,
                                    {Contention::Shared, Replicas::Independent}};
    REQUIRE(lower_bound(alone) ==
            search::lower_bound_with_contention(pipeline.plan, pipeline.costs, pipeline.topology));
  }
  CHECK(plans >= scaled(300));
}

TEST_CASE("replicas that stay in step do everything when they would together") {
  Dice dice(62);
  int split = 0;
  for (int i = 0; i < scaled(2000); ++i) {
    const Pipeline pipeline = in_step(dice);
    if (splits_micro_batches(pipeline.plan)) ++split;
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const Contention contention : kModes) {
      const auto together = by_action(pipeline.run(contention).timeline);
      const auto apart = by_action(pipeline.run_apart({.contention = contention}).timeline);
      REQUIRE(together.size() == apart.size());
      for (const auto& [key, one] : together) {
        const std::vector<TimedAction>& each = apart.at(key);
        REQUIRE(each.size() == pipeline.plan.stages[std::get<0>(key).position()].devices.size());
        Bytes sent;
        for (const TimedAction& timed : each) {
          REQUIRE(timed.start == one.front().start);
          REQUIRE(timed.end == one.front().end);
          sent += timed.size;
        }
        const bool is_reduction = reduces(std::get<1>(key));
        if (!is_reduction) REQUIRE(sent == one.front().size);
      }
    }
  }
  CHECK(split >= scaled(1000));
}

// Not where micro-batches are dealt: those of different lanes may then reach a port in another
// order.
TEST_CASE("without contention and slowdown no replica on its own does anything later") {
  Dice dice(63);
  int earlier = 0;
  for (int i = 0; i < scaled(4000); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.mixed = true, .cut = true});
    const simulate::SimulationResult result = pipeline.run(Contention::Off);
    const auto together = by_action(result.timeline);
    const simulate::SimulationResult other = pipeline.run_apart({.contention = Contention::Off});
    if (other.iteration < result.iteration) ++earlier;
    for (const auto& [key, each] : by_action(other.timeline)) {
      Duration latest;
      for (const TimedAction& timed : together.at(key)) latest = std::max(latest, timed.end);
      for (const TimedAction& timed : each) {
        if (timed.end > latest) FAIL("instance " << i << ": " << text_of(pipeline));
      }
    }
  }
  CHECK(earlier >= scaled(100));
}

TEST_CASE("on shared links what is sent earlier may hold up others, but far more plans gain") {
  Dice dice(66);
  int faster = 0;
  int slower = 0;
  for (int i = 0; i < scaled(4000); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.mixed = true, .cut = true});
    const Duration together = pipeline.run({.record = false}).iteration;
    const Duration apart = pipeline.run_apart({.record = false}).iteration;
    if (apart < together) ++faster;
    if (apart > together) ++slower;
  }
  CHECK(slower > 0);
  CHECK(faster > 10 * slower);
}

TEST_CASE("every replica works on each micro-batch once, in the order and memory of all") {
  Dice dice(64);
  for (int i = 0; i < scaled(600); ++i) {
    const Pipeline pipeline =
        random_pipeline(dice, {.slowdown = true, .deal = true, .mixed = true, .cut = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    const Schedule schedule = generate(pipeline.plan, Replicas::Independent);
    REQUIRE(to_text(schedule, pipeline.topology) == to_text(pipeline.schedule, pipeline.topology));
    const std::vector<DeviceMemory> together = pipeline.run().timeline.memory;
    for (const Contention contention : kModes) {
      const Timeline timeline = pipeline.run_apart({.contention = contention}).timeline;
      std::vector<std::vector<Action>> computed(schedule.lanes.size());
      for (const TimedAction& timed : timeline.actions) {
        if (is_computation(timed)) computed[timed.lane.position()].push_back(timed.action);
      }
      for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
        std::vector<Action> wanted = schedule.lanes[lane].actions;
        std::erase_if(
            wanted, [](const Action& action) { return stream_of(action.kind) != Stream::Compute; });
        REQUIRE(to_text(computed[lane]) == to_text(wanted));
      }
      REQUIRE(timeline.memory.size() == together.size());
      for (std::size_t device = 0; device < together.size(); ++device) {
        REQUIRE(timeline.memory[device].device == together[device].device);
        REQUIRE(timeline.memory[device].fixed == together[device].fixed);
      }
      // What a lane waits for is found again: nothing is idle without a cause.
      for (const LaneStatistics& lane : analyse(timeline).lanes) {
        REQUIRE(lane.busy + lane.idle.total() == iteration_time(timeline));
        REQUIRE(lane.idle.other == Duration{});
      }
    }
  }
}

TEST_CASE("no plan of independent replicas is simulated faster than its bounds") {
  Dice dice(65);
  int met = 0;
  int split = 0;
  for (int i = 0; i < scaled(12'000); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .mixed = true, .cut = true});
    if (splits_micro_batches(pipeline.plan)) ++split;
    const std::vector<std::int64_t>& depths = pipeline.plan.warmup_depths;
    for (const Contention contention : kModes) {
      const search::BoundedPlan bounded{
          pipeline.plan, pipeline.costs, pipeline.topology, {contention, Replicas::Independent}};
      const Duration by_table =
          search::EarliestStartBound(bounded).bound({.least = depths, .most = depths});
      const Duration bound =
          std::max({search::lower_bound(bounded), search::lower_bound_of_order(bounded), by_table});
      const Duration simulated =
          pipeline.run_apart({.contention = contention, .record = false}).iteration;
      if (bound == simulated) ++met;
      if (bound > simulated) {
        FAIL("instance " << i << ", contention " << to_string(contention) << ": "
                         << search::lower_bound(bounded).ns << ", "
                         << search::lower_bound_of_order(bounded).ns << " and " << by_table.ns
                         << " above " << simulated.ns << ": " << text_of(pipeline));
      }
    }
  }
  CHECK(split >= scaled(5000));
  CHECK(met >= scaled(5000));
}

}  // namespace
}  // namespace dapple
