// The bound of a plan against its simulation.

#include <algorithm>
#include <catch2/catch.hpp>

#include "../support/random_pipeline.h"
#include "dapple/planner/candidates/depths.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/bounds/earliest_start_bound.h"

namespace dapple {
namespace {

using namespace small;

/// Returns a box of depths of the pipeline that has the plan's own; an empty one if these are not
/// depths of a pipeline.
search::DepthBox box_around(const Plan& plan, Dice& dice) {
  const planner::Depths depths = planner::pipeline_depths(plan);
  search::DepthBox box;
  Plan again = plan;
  again.warmup_depths = planner::lane_depths(plan, depths);
  if (again.warmup_depths != plan.warmup_depths || depths.front() > plan.num_micro_batches)
    return box;
  box = {.least = depths, .most = depths};
  if (dice.chance(30)) return box;
  for (std::int64_t& depth : box.most) {
    depth = std::min(depth + dice.roll(0, 2), plan.num_micro_batches);
  }
  for (std::size_t s = depths.size() - 1; s-- > 0;) {
    box.most[s] = std::max(box.most[s], box.most[s + 1]);
  }
  std::int64_t most = plan.num_micro_batches;
  for (std::int64_t& depth : box.least) {
    depth = std::clamp<std::int64_t>(depth - dice.roll(0, 2), 1, most);
    most = depth;
  }
  return box;
}

TEST_CASE("no plan is simulated faster than its bound") {
  Dice dice(21);
  for (int i = 0; i < scaled(10'000); ++i) {
    const Pipeline pipeline =
        random_pipeline(dice, {.slowdown = true, .sharded = true, .cut = true});
    const Duration bound =
        std::max(search::lower_bound(pipeline.plan, pipeline.costs, pipeline.topology),
                 search::lower_bound_of_order(pipeline.plan, pipeline.costs));
    for (const Contention contention : {Contention::Off, Contention::Shared}) {
      const Duration simulated =
          pipeline.run({.contention = contention, .record = false}).iteration;
      if (bound > simulated) FAIL("instance " << i << ": " << text_of(pipeline));
    }
  }
}

TEST_CASE("nor one whose tensors skip stages directly") {
  Dice dice(25);
  int skipping = 0;
  for (int i = 0; i < scaled(6000); ++i) {
    const Pipeline pipeline =
        random_pipeline(dice, {.slowdown = true, .sharded = true, .direct = true, .cut = true});
    if (pipeline.costs.skips.empty()) continue;
    ++skipping;
    for (const Contention contention : {Contention::Off, Contention::Shared}) {
      const search::BoundedPlan bounded{
          pipeline.plan, pipeline.costs, pipeline.topology, {.contention = contention}};
      const Duration bound = std::max(lower_bound(bounded), search::lower_bound_of_order(bounded));
      if (bound > pipeline.run({.contention = contention, .record = false}).iteration) {
        FAIL("instance " << i << ": " << text_of(pipeline));
      }
    }
  }
  CHECK(skipping >= scaled(1500));
}

TEST_CASE("nor one with stages that deal their micro-batches, at its depths or any smaller ones") {
  Dice dice(24);
  int dealt = 0;
  for (int i = 0; i < scaled(10'000); ++i) {
    const Pipeline pipeline = random_pipeline(
        dice, {.slowdown = true, .deal = true, .mixed = i % 2 == 0, .sharded = true, .cut = true});
    if (!deals_micro_batches(pipeline.plan)) continue;
    ++dealt;
    for (const Contention contention : {Contention::Off, Contention::Shared}) {
      const search::BoundedPlan bounded{
          pipeline.plan, pipeline.costs, pipeline.topology, {.contention = contention}};
      const Duration simulated =
          pipeline.run({.contention = contention, .record = false}).iteration;
      search::EarliestStartBound starts(bounded);
      const search::DepthBox own = box_around(pipeline.plan, dice);
      if (lower_bound(bounded) > simulated) FAIL("instance " << i << ": " << text_of(pipeline));
      if (!own.most.empty() && starts.bound(own) > simulated) {
        FAIL("instance " << i << ", by starts: " << text_of(pipeline));
      }
    }
  }
  CHECK(dealt >= scaled(2000));
}

// A simulation that would take `whole` ends at a limit above that, or below it with a lower bound
// of at least the limit; a bound does the same.
TEST_CASE("simulations and bounds that may end at a limit are exact below it and true above it") {
  Dice dice(26);
  int early = 0;
  int boxes = 0;
  for (int i = 0; i < scaled(3000); ++i) {
    const Pipeline pipeline = random_pipeline(
        dice, {.slowdown = true, .deal = i % 3 == 0, .mixed = true, .sharded = true, .cut = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    const auto check_limits = [&](Duration whole, const auto& until) {
      CHECK(until(whole + Duration{1}) == whole);
      for (const Duration enough : {whole, Duration{dice.roll(0, whole.ns)}}) {
        const Duration some = until(enough);
        CHECK(enough <= some);
        CHECK(some <= whole);
        early += some < whole ? 1 : 0;
      }
    };
    const search::DepthBox box = box_around(pipeline.plan, dice);
    for (const Contention contention : {Contention::Off, Contention::Shared}) {
      const auto simulated = [&](Duration enough) {
        return pipeline.run({.contention = contention, .record = false, .enough = enough})
            .iteration;
      };
      check_limits(simulated(Duration::infinite()), simulated);
      if (box.most.empty()) continue;
      ++boxes;
      search::EarliestStartBound starts(
          {pipeline.plan, pipeline.costs, pipeline.topology, {.contention = contention}});
      check_limits(starts.bound(box),
                   [&](Duration enough) { return starts.bound(box, nullptr, enough); });
    }
  }
  CHECK(early >= scaled(1000));
  CHECK(boxes >= scaled(1000));
}

TEST_CASE("the bound grows no longer with a deeper stage, and holds at the plan's own depths") {
  // A bound at a depth holds for every lower one, so it must not fall below that of a deeper limit.
  Dice dice(22);
  for (int i = 0; i < scaled(1000); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.sharded = true, .cut = true});
    Plan deepest = pipeline.plan;
    for (std::int64_t& depth : deepest.warmup_depths) depth = deepest.num_micro_batches;
    const Duration own = search::lower_bound(pipeline.plan, pipeline.costs, pipeline.topology);
    const Duration any = search::lower_bound(deepest, pipeline.costs, pipeline.topology);
    if (any > own) FAIL("instance " << i << ": " << text_of(pipeline));
  }
}

TEST_CASE("what sticks out of a stage alone is the bound's exposed all-reduce") {
  // One stage: M (F + B), then what sticks out and the step, without slowdown exactly.
  Dice dice(23);
  int stages = 0;
  for (int i = 0; i < scaled(1500); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.sharded = true, .cut = true});
    if (pipeline.plan.stages.size() > 1) continue;
    ++stages;
    INFO("instance " << i << ": " << text_of(pipeline));
    const StageCost& stage = pipeline.costs.stages.front();
    const Duration computing = pipeline.plan.num_micro_batches * (stage.forward + stage.backward);
    const Duration expected = computing + search::time_after_last_backward(stage);
    REQUIRE(pipeline.run().iteration == expected);
    REQUIRE(search::lower_bound(pipeline.plan, pipeline.costs, pipeline.topology) == expected);
  }
  CHECK(stages > 0);
}

}  // namespace
}  // namespace dapple
