// What holds for the timeline of any plan.

#include <catch2/catch.hpp>

#include <tuple>

#include "../support/random_pipeline.h"
#include "dapple/search/bounds/bound.h"
#include "reference_checks.h"

namespace dapple {
namespace {

using namespace small;

constexpr Contention kModes[] = {Contention::Shared, Contention::Off};

/// Stages alike, without transfers, on one switch.
Pipeline uniform(std::size_t stages, std::int64_t micro_batches, LayerFigures layer, bool gpipe) {
  PlanShape shape{.num_micro_batches = micro_batches, .gpipe = gpipe};
  for (std::size_t s = 0; s < stages; ++s) {
    shape.depths.push_back(std::min(static_cast<std::int64_t>(stages - s), micro_batches));
    shape.stages.push_back({.layers = 1, .devices = {static_cast<std::int32_t>(s)}});
  }
  return {model_of(std::vector<LayerFigures>(stages, layer)),
          cluster({.servers = 1, .devices = static_cast<std::int32_t>(stages)}), shape};
}

TEST_CASE("uniform stages without transfers take (M + S - 1)(F + B), policy A and GPipe alike") {
  Dice dice(1);
  for (std::size_t stages = 2; stages <= 16; ++stages) {
    for (auto count = static_cast<std::int64_t>(stages); count <= 64; ++count) {
      const LayerFigures layer{.forward = dice.roll(1, 1'000'000),
                               .backward = dice.roll(1, 1'000'000)};
      const std::int64_t expected =
          (count + static_cast<std::int64_t>(stages) - 1) * (layer.forward + layer.backward);
      const Pipeline by_policy = uniform(stages, count, layer, false);
      const Pipeline by_gpipe = uniform(stages, count, layer, true);
      for (const Contention contention : kModes) {
        const simulate::SimulationOptions options{.contention = contention, .record = false};
        REQUIRE(by_policy.run(options).iteration.ns == expected);
        REQUIRE(by_gpipe.run(options).iteration.ns == expected);
      }
      REQUIRE(search::lower_bound(by_policy.plan, by_policy.costs, by_policy.topology).ns ==
              expected);
    }
  }
}

void check_against_reference(const Pipeline& pipeline, Contention contention) {
  const simulate::SimulationResult result = pipeline.run(contention);
  const ReferenceTimes expected = require_reference_times(pipeline, contention, result);
  std::int64_t end = 0;
  for (const std::vector<Interval>& steps : expected.step) end = std::max(end, steps.back().end);
  REQUIRE(result.iteration.ns == end);
}

TEST_CASE("without contention the simulator meets the equations of start and end times exactly") {
  Dice dice(2);
  for (int i = 0; i < scaled(2500); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .cut = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    check_against_reference(pipeline, Contention::Off);
  }
}

TEST_CASE("under contention it meets them with links shared anew at every change") {
  Dice dice(8);
  for (int i = 0; i < scaled(1500); ++i) {
    const Pipeline pipeline =
        random_pipeline(dice, {.slowdown = true, .cut = true, .most_micro_batches = 4});
    INFO("instance " << i << ": " << text_of(pipeline));
    check_against_reference(pipeline, Contention::Shared);
  }
}

TEST_CASE("it meets them where tensors that skip stages are sent directly") {
  Dice dice(9);
  int skipping = 0;
  for (int i = 0; i < scaled(1000); ++i) {
    const Pipeline pipeline =
        random_pipeline(dice, {.slowdown = true, .direct = true, .most_micro_batches = 4});
    if (pipeline.costs.skips.empty()) continue;
    ++skipping;
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const Contention contention : kModes) check_against_reference(pipeline, contention);
  }
  CHECK(skipping >= scaled(200));
}

TEST_CASE("in flight are as many as the warm-up depth, and the peak is the memory model's") {
  Dice dice(3);
  for (int i = 0; i < scaled(600); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .cut = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const Contention contention : kModes) {
      const Timeline timeline = pipeline.run(contention).timeline;
      for (std::size_t s = 0; s < pipeline.plan.stages.size(); ++s) {
        REQUIRE(most_in_flight(timeline, index_at<LaneIndex>(s)) == pipeline.plan.warmup_depths[s]);
      }
      std::size_t devices = 0;
      for (const StageCost& stage : pipeline.costs.stages) {
        for (const ReplicaCost& replica : stage.replicas) {
          const DeviceMemory& memory = timeline.memory[devices++];
          REQUIRE(memory.device == replica.device);
          REQUIRE(memory.limit == replica.memory_limit);
          REQUIRE(peak_memory(timeline, memory).count == replica.memory.peak().count);
        }
      }
      REQUIRE(timeline.memory.size() == devices);
    }
  }
}

TEST_CASE("a dealt replica never holds more than its memory allows for") {
  Dice dice(4);
  for (int i = 0; i < scaled(300); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .deal = true, .cut = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    const Timeline timeline = pipeline.run().timeline;
    std::size_t devices = 0;
    for (const StageCost& stage : pipeline.costs.stages) {
      for (const ReplicaCost& replica : stage.replicas) {
        const DeviceMemory& memory = timeline.memory[devices++];
        REQUIRE(memory.device == replica.device);
        REQUIRE(peak_memory(timeline, memory).count == replica.memory.peak().count);
      }
    }
  }
}

TEST_CASE("a schedule that the validator accepts runs to its end, each micro-batch once a stage") {
  Dice dice(5);
  for (int i = 0; i < scaled(600); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .deal = true, .cut = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const Contention contention : kModes) {
      const simulate::SimulationResult result = pipeline.run(contention);
      const auto count = static_cast<std::size_t>(pipeline.plan.num_micro_batches);
      const std::size_t stages = pipeline.plan.stages.size();
      std::vector<std::vector<int>> forwards(stages, std::vector<int>(count, 0));
      std::vector<std::vector<int>> backwards = forwards;
      for (const TimedAction& timed : result.timeline.actions) {
        const auto stage = timed.action.stage.position();
        const auto index = static_cast<std::size_t>(timed.action.index);
        if (timed.action.kind == ActionKind::Forward) ++forwards[stage][index];
        if (timed.action.kind == ActionKind::Backward) ++backwards[stage][index];
      }
      const std::vector<std::vector<int>> once(stages, std::vector<int>(count, 1));
      REQUIRE((forwards == once));
      REQUIRE((backwards == once));
      REQUIRE(iteration_time(result.timeline) == result.iteration);
    }
  }
}

TEST_CASE("the same run twice is the same to the last action") {
  Dice dice(6);
  const auto key = [](const TimedAction& timed) {
    return std::tuple(timed.lane.value, timed.action.kind, timed.action.index, timed.start.ns,
                      timed.end.ns, timed.size.count);
  };
  for (int i = 0; i < scaled(150); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .deal = true, .cut = true});
    for (const Contention contention : kModes) {
      const simulate::SimulationResult first = pipeline.run(contention);
      const simulate::SimulationResult second = pipeline.run(contention);
      REQUIRE(first.events == second.events);
      REQUIRE(first.timeline.actions.size() == second.timeline.actions.size());
      for (std::size_t a = 0; a < first.timeline.actions.size(); ++a) {
        REQUIRE(key(first.timeline.actions[a]) == key(second.timeline.actions[a]));
      }
      for (std::size_t lane = 0; lane < first.timeline.lanes.size(); ++lane) {
        REQUIRE(first.timeline.lanes[lane].devices == pipeline.schedule.lanes[lane].devices);
      }
    }
  }
}

TEST_CASE("a run without a record ends when a recorded one does") {
  Dice dice(7);
  for (int i = 0; i < scaled(150); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .deal = true, .cut = true});
    for (const Contention contention : kModes) {
      const simulate::SimulationResult bare =
          pipeline.run({.contention = contention, .record = false});
      const simulate::SimulationResult recorded = pipeline.run(contention);
      REQUIRE(bare.iteration == recorded.iteration);
      REQUIRE(bare.events == recorded.events);
    }
  }
}

}  // namespace
}  // namespace dapple
