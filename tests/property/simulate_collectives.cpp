// Collectives within passes that share links with transfers, reductions and each other.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "../support/random_collectives.h"
#include "dapple/plan/runtime.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/bounds/earliest_start_bound.h"
#include "reference_checks.h"

namespace dapple {
namespace {

using namespace small;

constexpr Contention kShared = Contention::SharedWithCollectives;

TEST_CASE("with collectives on shared links the simulator meets the equations exactly") {
  Dice dice(61);
  int slowed = 0;
  for (int i = 0; i < scaled(800); ++i) {
    const Pipeline pipeline = random_pipeline_with_collectives(
        dice, {.slowdown = true, .mixed = i % 3 == 0, .most_micro_batches = 3});
    INFO("instance " << i << ": " << text_of(pipeline));
    const simulate::SimulationResult result = pipeline.run(kShared);
    require_reference_times(pipeline, kShared, result);
    if (result.iteration > pipeline.run(Contention::Shared).iteration) ++slowed;
  }
  CHECK(slowed > scaled(800) / 4);
}

TEST_CASE("no plan is faster than its bound where collectives share links") {
  Dice dice(62);
  int dealt = 0;
  for (int i = 0; i < scaled(6000); ++i) {
    const Pipeline pipeline = random_pipeline_with_collectives(
        dice, {.slowdown = i % 2 == 0, .deal = i % 3 == 0, .mixed = i % 5 == 0, .sharded = true});
    const Plan& plan = pipeline.plan;
    if (deals_micro_batches(plan)) ++dealt;
    const search::BoundedPlan bounded{
        plan, pipeline.costs, pipeline.topology, {.contention = kShared}};
    Duration bound = lower_bound(bounded);
    if (!deals_micro_batches(plan)) {
      bound = std::max(bound, lower_bound_of_order(bounded));
      const bool falls = std::is_sorted(plan.warmup_depths.rbegin(), plan.warmup_depths.rend());
      if (falls && plan.family != ScheduleFamily::GPipe) {
        search::EarliestStartBound starts(bounded);
        bound = std::max(bound, starts.bound({plan.warmup_depths, plan.warmup_depths}));
      }
    }
    const Duration simulated = pipeline.run({.contention = kShared, .record = false}).iteration;
    if (bound > simulated) FAIL("instance " << i << ": " << text_of(pipeline));
    const search::BoundedPlan apart{plan,
                                    pipeline.costs,
                                    pipeline.topology,
                                    {.contention = kShared, .replicas = Replicas::Independent}};
    if (deals_micro_batches(plan)) continue;
    const Duration on_their_own =
        pipeline.run_apart({.contention = kShared, .record = false}).iteration;
    if (lower_bound(apart) > on_their_own) {
      FAIL("instance " << i << ", replicas apart: " << text_of(pipeline));
    }
  }
  CHECK(dealt > 0);
}

TEST_CASE("nor where transfers block") {
  Dice dice(65);
  int blocked = 0;
  for (int i = 0; i < scaled(2000); ++i) {
    const Pipeline pipeline =
        random_pipeline_with_collectives(dice, {.slowdown = i % 2 == 0, .sharded = true});
    for (const Transfers transfers : {Transfers::Blocking, Transfers::Serial}) {
      const SimulationMode mode{.contention = kShared, .transfers = transfers};
      if (!mode_faults(pipeline.plan, mode).empty()) continue;
      ++blocked;
      const Duration simulated =
          pipeline.run({.contention = kShared, .transfers = transfers, .record = false}).iteration;
      const Duration bound =
          search::lower_bound({pipeline.plan, pipeline.costs, pipeline.topology, mode});
      if (bound > simulated) FAIL("instance " << i << ": " << text_of(pipeline));
    }
  }
  CHECK(blocked > scaled(2000) / 4);
}

/// Whether no other device of the plan uses the NIC of one of the stage.
bool has_nics_alone(const Pipeline& pipeline, const StageCost& stage) {
  const Topology& topology = pipeline.topology;
  const auto nic_of = [&](DeviceIndex device) {
    return std::pair(topology.device(device).server, topology.nic_of(device));
  };
  std::map<std::pair<ServerIndex, std::int32_t>, int> users;
  for (const StagePlan& some : pipeline.plan.stages) {
    for (const DeviceIndex device : some.devices) ++users[nic_of(device)];
  }
  return std::all_of(stage.replicas.begin(), stage.replicas.end(), [&](const ReplicaCost& replica) {
    return users.at(nic_of(replica.device)) == 1;
  });
}

void check_alone(const Pipeline& pipeline) {
  const auto time = [&](Contention contention, bool apart) {
    const simulate::SimulationOptions options{
        .contention = contention, .record = false, .free_transfers = true, .free_all_reduce = true};
    return (apart ? pipeline.run_apart(options) : pipeline.run(options)).iteration;
  };
  REQUIRE(time(kShared, false) == time(Contention::Shared, false));
  if (!splits_micro_batches(pipeline.plan) || deals_micro_batches(pipeline.plan)) return;
  REQUIRE(time(kShared, true) == time(Contention::Shared, true));
}

TEST_CASE("passes whose collectives have their links alone take as long as their costs say") {
  Dice dice(63);
  int alone = 0;
  for (int i = 0; i < scaled(3000); ++i) {
    Pipeline pipeline =
        random_pipeline(dice, {.slowdown = true, .deal = true, .mixed = i % 2 == 0});
    add_collectives(dice, pipeline.costs,
                    [&](const StageCost& stage) { return has_nics_alone(pipeline, stage); });
    if (has_traffic(pipeline.costs)) ++alone;
    INFO("instance " << i << ": " << text_of(pipeline));
    check_alone(pipeline);
  }
  CHECK(alone > scaled(3000) / 10);
}

/// Alike stages under a family, one device in each server, so that each has a NIC of its own.
Pipeline family_on_servers(Dice& dice, ScheduleFamily family) {
  const std::int32_t devices = static_cast<std::int32_t>(dice.roll(2, 4));
  const LayerFigures layer{.forward = dice.roll(1, 900),
                           .backward = dice.roll(1, 900),
                           .output = dice.roll(0, 500),
                           .parameters = dice.roll(0, 300)};
  PlanShape shape{.num_micro_batches = devices * dice.roll(1, 2)};
  for (std::int32_t s = 0; s < devices; ++s) {
    shape.stages.push_back({.layers = 2, .devices = {s}});
    shape.depths.push_back(std::min<std::int64_t>(devices - s, shape.num_micro_batches));
  }
  const ModelProfile profile =
      model_of(std::vector<LayerFigures>(2 * static_cast<std::size_t>(devices), layer));
  const TopologyDescription description =
      cluster({.servers = devices, .nics = {random_link(dice, random_ranges(dice))}});
  const Pipeline plain(profile, description, shape);
  const bool loops = family == ScheduleFamily::ZeroBubbleV || family == ScheduleFamily::Interleaved;
  const auto made = planner::reschedule(
      plain.plan, plain.profile, plain.topology,
      {.family = family, .chunks_per_device = loops ? 2 : 1, .evaluations = 20});
  return {profile, description, std::get<planner::Rescheduled>(made).plan};
}

TEST_CASE(
    "under any family the same holds, and no pass is shorter than its costs where links are "
    "shared") {
  Dice dice(64);
  constexpr ScheduleFamily kFamilies[] = {ScheduleFamily::Interleaved, ScheduleFamily::ZeroBubbleH1,
                                          ScheduleFamily::ZeroBubbleV};
  int longer = 0;
  for (int i = 0; i < scaled(150); ++i) {
    Pipeline pipeline = family_on_servers(dice, kFamilies[i % 3]);
    add_collectives(dice, pipeline.costs, [](const StageCost&) { return true; });
    INFO("instance " << i << ": " << text_of(pipeline));
    check_alone(pipeline);
    for (const TimedAction& timed : pipeline.run(kShared).timeline.actions) {
      const StageCost& cost = pipeline.costs.stages[timed.action.stage.position()];
      const Duration lasting = timed.end - timed.start;
      Duration alone;
      if (timed.action.kind == ActionKind::Forward) alone = cost.forward;
      if (timed.action.kind == ActionKind::Backward) alone = cost.backward;
      if (timed.action.kind == ActionKind::InputGradient) alone = cost.input_gradient;
      if (timed.action.kind == ActionKind::WeightGradient) alone = cost.weight_gradient;
      REQUIRE(lasting >= alone);
      if (stream_of(timed.action.kind) == Stream::Compute && alone > Duration{} &&
          lasting > alone) {
        ++longer;
      }
    }
  }
  CHECK(longer > 0);
}

}  // namespace
}  // namespace dapple
