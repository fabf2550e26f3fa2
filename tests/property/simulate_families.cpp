// Schedules of several stages per device: closed forms where theory has them, and what holds for
// any of them.

#include <catch2/catch.hpp>

#include <numeric>

#include "../support/random_pipeline.h"
#include "dapple/simulate/device_memory.h"

namespace dapple {
namespace {

using namespace small;

constexpr Contention kModes[] = {Contention::Shared, Contention::Off};

struct LoopedShape {
  ScheduleFamily family = ScheduleFamily::Interleaved;
  std::int32_t groups = 1;
  std::int32_t chunks = 1;
  std::int64_t micro_batches = 1;
};

/// A layer per stage, a device per group, stage i on device i mod groups.
Pipeline looped(const std::vector<LayerFigures>& layers, const LoopedShape& shape) {
  PlanShape figures{.num_micro_batches = shape.micro_batches};
  for (std::size_t s = 0; s < layers.size(); ++s) {
    figures.stages.push_back({.devices = {static_cast<std::int32_t>(s) % shape.groups}});
  }
  const ModelProfile profile = model_of(layers);
  Plan plan = plan_of(profile, figures);
  plan.family = shape.family;
  plan.chunks_per_device = shape.chunks;
  fill_depths(plan);
  return {profile, cluster({.devices = shape.groups}), std::move(plan)};
}

std::vector<LayerFigures> alike(const LoopedShape& shape, const LayerFigures& layer) {
  return std::vector<LayerFigures>(static_cast<std::size_t>(shape.groups * shape.chunks), layer);
}

TEST_CASE("interleaving divides the bubble by the number of chunks") {
  Dice dice(41);
  for (std::int32_t groups = 2; groups <= 32; groups += groups < 8 ? 1 : 8) {
    for (std::int32_t chunks = 2; chunks <= 4; ++chunks) {
      for (std::int64_t rounds : {1, 2, 3, 8}) {
        const LoopedShape shape{
            .groups = groups, .chunks = chunks, .micro_batches = rounds * groups};
        const LayerFigures layer{.forward = dice.roll(1, 1000), .backward = dice.roll(1, 1000)};
        // A device works chunks * (f + b) on each micro-batch. Without chunks it would idle for
        // (S - 1) times that; with them for (S - 1)(f + b).
        const std::int64_t expected =
            (shape.micro_batches * chunks + groups - 1) * (layer.forward + layer.backward);
        CAPTURE(groups, chunks, rounds);
        for (const Contention contention : kModes) {
          REQUIRE(looped(alike(shape, layer), shape).run(contention).iteration.ns == expected);
        }
      }
    }
  }
}

TEST_CASE("breadth-first idles as little as interleaving and holds every micro-batch") {
  Dice dice(42);
  for (std::int32_t groups = 2; groups <= 9; ++groups) {
    for (std::int32_t chunks = 1; chunks <= 4; ++chunks) {
      for (std::int64_t micro_batches = groups; micro_batches <= 3 * groups; ++micro_batches) {
        const LoopedShape shape{.family = ScheduleFamily::BreadthFirst,
                                .groups = groups,
                                .chunks = chunks,
                                .micro_batches = micro_batches};
        const LayerFigures layer{.forward = dice.roll(1, 1000), .backward = dice.roll(1, 1000)};
        const std::int64_t expected =
            (micro_batches * chunks + groups - 1) * (layer.forward + layer.backward);
        CAPTURE(groups, chunks, micro_batches);
        const Pipeline pipeline = looped(alike(shape, layer), shape);
        const simulate::SimulationResult result = pipeline.run();
        REQUIRE(result.iteration.ns == expected);
        for (std::size_t lane = 0; lane < result.timeline.lanes.size(); ++lane) {
          REQUIRE(most_in_flight(result.timeline, index_at<LaneIndex>(lane)) ==
                  micro_batches * chunks);
        }
      }
    }
  }
}

TEST_CASE("interleaving holds what its warm-up lets in and one more") {
  for (std::int32_t groups = 1; groups <= 8; ++groups) {
    for (std::int32_t chunks = 2; chunks <= 4; ++chunks) {
      for (const std::int64_t rounds : {1, 2, 4}) {
        const LoopedShape shape{
            .groups = groups, .chunks = chunks, .micro_batches = rounds * groups};
        const Pipeline pipeline = looped(alike(shape, {.forward = 2, .backward = 3}), shape);
        const Timeline timeline = pipeline.run().timeline;
        for (std::int32_t group = 0; group < groups; ++group) {
          const std::int64_t warm_up = 2 * (groups - group - 1) + (chunks - 1) * groups;
          const std::int64_t all = shape.micro_batches * chunks;
          CAPTURE(groups, chunks, rounds, group);
          REQUIRE(most_in_flight(timeline, LaneIndex{group}) == std::min(warm_up + 1, all));
        }
      }
    }
  }
}

/// Stages of random figures, any number of micro-batches, often several replicas.
Pipeline random_looped(Dice& dice) {
  LoopedShape shape{
      .family = dice.chance(50) ? ScheduleFamily::Interleaved : ScheduleFamily::BreadthFirst,
      .groups = static_cast<std::int32_t>(dice.roll(1, 4)),
      .chunks = static_cast<std::int32_t>(dice.roll(2, 3)),
      .micro_batches = dice.roll(1, 4)};
  if (shape.family == ScheduleFamily::Interleaved) shape.micro_batches *= shape.groups;
  const auto replicas = static_cast<std::int32_t>(dice.roll(1, 3));
  std::vector<LayerFigures> layers;
  PlanShape figures{.micro_batch_size = dice.roll(replicas, 4),
                    .num_micro_batches = shape.micro_batches};
  for (std::int32_t s = 0; s < shape.groups * shape.chunks; ++s) {
    layers.push_back({.forward = dice.roll(0, 40),
                      .backward = dice.roll(0, 80),
                      .output = dice.roll(0, 60),
                      .parameters = dice.roll(0, 400),
                      .stash = dice.roll(0, 100),
                      .workspace = dice.roll(0, 30)});
    StageShape& stage = figures.stages.emplace_back();
    stage.recompute = dice.chance(30);
    for (std::int32_t i = 0; i < replicas; ++i) {
      stage.devices.push_back(s % shape.groups * replicas + i);
    }
  }
  figures.bucket_size = {dice.roll(1, 400)};
  const ModelProfile profile = model_of(layers);
  Plan plan = plan_of(profile, figures);
  plan.family = shape.family;
  plan.chunks_per_device = shape.chunks;
  fill_depths(plan);
  TopologyDescription description =
      cluster({.servers = shape.groups, .devices = replicas, .nics = {{bytes_per_ns(1), {3}}}});
  if (dice.chance(50)) description.overlap_slowdown = {kOne.billionths * 5 / 4};
  return {profile, std::move(description), std::move(plan)};
}

TEST_CASE("a device with several stages does one thing at a time, each when its input is there") {
  Dice dice(43);
  for (int i = 0; i < scaled(800); ++i) {
    const Pipeline pipeline = random_looped(dice);
    const simulate::SimulationResult result =
        pipeline.run(i % 2 == 0 ? Contention::Off : Contention::Shared);
    INFO("instance " << i << ": " << text_of(pipeline));
    std::vector<Duration> free(pipeline.schedule.lanes.size());
    std::vector<Duration> compute(pipeline.plan.stages.size());
    std::map<std::string, const TimedAction*> by_name;
    for (const TimedAction& timed : result.timeline.actions) {
      by_name[to_text(timed.action)] = &timed;
      if (stream_of(timed.action.kind) != Stream::Compute) continue;
      REQUIRE(timed.start >= free[timed.lane.position()]);
      free[timed.lane.position()] = timed.end;
      compute[timed.action.stage.position()] += timed.end - timed.start;
    }
    for (std::size_t s = 0; s < pipeline.plan.stages.size(); ++s) {
      const StageCost& cost = pipeline.costs.stages[s];
      const Duration work =
          pipeline.plan.num_micro_batches * (cost.forward + cost.backward) + cost.optimizer_step;
      // Reductions may slow computation down.
      REQUIRE(compute[s] >= work);
      if (pipeline.costs.overlap_slowdown == kOne) REQUIRE(compute[s] == work);
      if (s == 0) continue;
      for (std::int64_t m = 0; m < pipeline.plan.num_micro_batches; ++m) {
        const auto index = static_cast<std::int32_t>(m);
        const auto named = [&](ActionKind kind, std::size_t stage) {
          return by_name.at(to_text({kind, index, index_at<StageIndex>(stage)}));
        };
        const TimedAction* activation = named(ActionKind::SendActivation, s - 1);
        REQUIRE(activation->start >= named(ActionKind::Forward, s - 1)->end);
        REQUIRE(named(ActionKind::Forward, s)->start >= activation->end);
        const TimedAction* gradient = named(ActionKind::SendGradient, s);
        REQUIRE(gradient->start >= named(ActionKind::Backward, s)->end);
        REQUIRE(named(ActionKind::Backward, s - 1)->start >= gradient->end);
      }
    }
  }
}

TEST_CASE("the peak of the order is the peak of the timeline, and no less than what is fixed") {
  Dice dice(44);
  for (int i = 0; i < scaled(500); ++i) {
    const Pipeline pipeline = random_looped(dice);
    INFO("instance " << i << ": " << text_of(pipeline));
    const Timeline timeline = pipeline.run().timeline;
    for (const DeviceMemory& memory : timeline.memory) {
      const Lane& lane = pipeline.schedule.lanes[memory.lane.position()];
      REQUIRE(peak_memory(timeline, memory) == peak_memory(lane, memory));
      // By hand: one micro-batch at a time, each stage's count times its stash.
      std::vector<std::int64_t> in_flight(pipeline.plan.stages.size(), 0);
      std::int64_t most = 0;
      for (const Action& action : lane.actions) {
        std::int64_t held = 0;
        if (action.kind == ActionKind::Forward) ++in_flight[action.stage.position()];
        for (const StageMemory& stage : memory.stages) {
          held += in_flight[stage.stage.position()] * stage.per_micro_batch.count;
          const bool recomputes =
              action.kind == ActionKind::Backward && action.stage == stage.stage;
          if (recomputes) held += stage.recompute_stash.count;
        }
        most = std::max(most, held);
        if (action.kind == ActionKind::Backward) --in_flight[action.stage.position()];
      }
      REQUIRE(peak_memory(lane, memory).count == memory.fixed.count + most);
    }
  }
}

TEST_CASE("where devices hold one stage, both questions about missing memory have one answer") {
  Dice dice(45);
  int short_of_memory = 0;
  for (int i = 0; i < scaled(500); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {});
    PlanCost costs = pipeline.costs;
    for (StageCost& stage : costs.stages) {
      for (ReplicaCost& replica : stage.replicas) {
        replica.memory_limit = {dice.roll(0, 2 * replica.memory.peak().count)};
      }
    }
    const std::vector<MemoryShortage> by_costs = memory_shortages(costs);
    const std::vector<MemoryShortage> by_order =
        simulate::memory_shortages(pipeline.schedule, costs);
    REQUIRE(by_costs.size() == by_order.size());
    for (std::size_t k = 0; k < by_costs.size(); ++k) {
      REQUIRE(by_costs[k].device == by_order[k].device);
      REQUIRE(by_costs[k].stage == by_order[k].stage);
      REQUIRE(by_costs[k].needed == by_order[k].needed);
      REQUIRE(by_costs[k].limit == by_order[k].limit);
    }
    short_of_memory += by_costs.empty() ? 0 : 1;
  }
  CHECK(short_of_memory > scaled(300));
}

}  // namespace
}  // namespace dapple
