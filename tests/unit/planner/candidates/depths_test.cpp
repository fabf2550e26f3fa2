#include "dapple/planner/candidates/depths.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "../../../support/clusters.h"
#include "../../../support/models.h"
#include "dapple/schedule/schedule.h"

using namespace dapple;

namespace {

/// Stages of one layer that deal so many micro-batches of one sample to so many replicas each.
Plan dealing_plan(const std::vector<std::int32_t>& replicas, std::int64_t micro_batches) {
  Plan plan{.global_batch_size = micro_batches,
            .micro_batch_size = 1,
            .num_micro_batches = micro_batches,
            .warmup_depths = {},
            .stages = {}};
  std::int32_t device = 0;
  std::int32_t layer = 0;
  for (const std::int32_t count : replicas) {
    StagePlan& stage = plan.stages.emplace_back();
    stage.layers = {layer, layer + 1};
    stage.replication = Replication::Deal;
    for (std::int32_t i = 0; i < count; ++i) stage.devices.push_back({device++});
    if (count > 1) stage.gradient_buckets = {Bytes{1}};
    ++layer;
  }
  return plan;
}

/// All warm-up depths, from one to the micro-batches of a stage's first replica.
std::vector<planner::Depths> all_depths(const Plan& plan) {
  std::vector<planner::Depths> all{{}};
  for (const StagePlan& stage : plan.stages) {
    std::vector<planner::Depths> longer;
    for (const planner::Depths& depths : all) {
      for (std::int64_t depth = 1; depth <= micro_batches_of(plan, stage, 0); ++depth) {
        longer.push_back(depths);
        longer.back().push_back(depth);
      }
    }
    all = std::move(longer);
  }
  return all;
}

/// Whether (L3) holds: each stage can send what any later one needs before its first backward.
bool sends_enough(const Plan& plan) {
  for (std::size_t t = 0; t < plan.stages.size(); ++t) {
    for (std::size_t s = 0; s < t; ++s) {
      const std::int64_t sent = plan.warmup_depths[s] * dealt_to(plan.stages[s]);
      if (sent <= (plan.warmup_depths[t] - 1) * dealt_to(plan.stages[t])) return false;
    }
  }
  return true;
}

/// Whether some replica has fewer micro-batches than the depth of its stage.
bool has_short_replica(const Plan& plan) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    if (micro_batches_of(plan, stage, stage.devices.size() - 1) < plan.warmup_depths[s])
      return true;
  }
  return false;
}

}  // namespace

TEST_CASE("depths of the pipeline give all depths of dealt stages that send enough") {
  for (const std::vector<std::int32_t>& replicas :
       {std::vector{1, 1}, {2, 1}, {1, 2}, {2, 3}, {3, 2}, {1, 2, 1}, {2, 1, 3}, {3, 1, 1}}) {
    for (std::int64_t micro_batches = 3; micro_batches <= 6; ++micro_batches) {
      Plan plan = dealing_plan(replicas, micro_batches);
      std::set<planner::Depths> found;
      for (const planner::Depths& depths :
           planner::legal_depths(plan.stages.size(), micro_batches)) {
        plan.warmup_depths = planner::lane_depths(plan, depths);
        found.insert(plan.warmup_depths);
        // The least depths of the pipeline come back, and do not rise.
        const planner::Depths least = planner::pipeline_depths(plan);
        REQUIRE(std::is_sorted(least.rbegin(), least.rend()));
        REQUIRE(planner::lane_depths(plan, least) == plan.warmup_depths);
        for (std::size_t s = 0; s < least.size(); ++s) REQUIRE(least[s] <= depths[s]);
      }
      for (const planner::Depths& depths : all_depths(plan)) {
        plan.warmup_depths = depths;
        CAPTURE(replicas, micro_batches, depths);
        REQUIRE(found.count(depths) == (sends_enough(plan) ? 1U : 0U));
        const bool is_sound = validate(generate(plan), plan).empty();
        if (sends_enough(plan)) REQUIRE(is_sound);
        if (is_sound && !sends_enough(plan)) REQUIRE(has_short_replica(plan));
      }
    }
  }
}

TEST_CASE("a lane waits for no other though a stage in front sends less than another lane needs") {
  // Micro-batch 3 is the second of the first of three replicas; the others have one each, so that
  // their backwards let the stage in front go on.
  Plan plan = dealing_plan({2, 3}, 4);
  plan.warmup_depths = {1, 2};
  CHECK(validate(generate(plan), plan).empty());
  CHECK_FALSE(sends_enough(plan));
}

TEST_CASE("a neighbour of a dealt stage's depth has one more on each of its replicas") {
  Plan plan = dealing_plan({2, 1}, 6);
  plan.warmup_depths = {1, 1};
  std::set<planner::Depths> depths;
  for (const planner::Depths& some : planner::neighbours(plan)) {
    depths.insert(planner::lane_depths(plan, some));
  }
  CHECK(depths == std::set<planner::Depths>{{2, 1}, {1, 2}});
}

TEST_CASE("where transfers block, the depths of two stages differ by one at most") {
  const ModelProfile profile = small::model_of(std::vector<small::LayerFigures>(3));
  const Topology topology(small::cluster({.servers = 1, .devices = 3}));
  const CostModel costs(profile, topology);
  Plan plan = dealing_plan({1, 1, 1}, 5);
  for (StagePlan& stage : plan.stages) stage.replication = Replication::Split;
  const planner::DepthLimits blocking(plan, costs, true, Transfers::Blocking);
  const planner::DepthLimits overlapped(plan, costs, true, Transfers::Overlapped);
  for (const planner::Depths& depths : planner::legal_depths(3, 5)) {
    CAPTURE(depths);
    const bool is_slow_fall = depths[0] <= depths[1] + 1 && depths[1] <= depths[2] + 1;
    CHECK(blocking.fit_as_they_are(depths) == is_slow_fall);
    CHECK(overlapped.fit_as_they_are(depths));
  }
}
