// The bound of a whole plan on problems that open every dimension, at any depths: what the oracle
// and the proofs of the exact search both lean on.

#include <catch2/catch.hpp>

#include "../support/random_group.h"
#include "../support/random_pipeline.h"
#include "../support/random_planning_problem.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/bounds/earliest_start_bound.h"

using namespace dapple;

namespace {

/// A box around the depths, and legal: neither end rises from stage to stage.
search::DepthBox around(small::Dice& dice, const std::vector<std::int64_t>& depths,
                        std::int64_t num_micro_batches) {
  search::DepthBox box{.least = depths, .most = depths};
  for (std::size_t s = 0; s < depths.size(); ++s) {
    box.least[s] = dice.roll(1, depths[s]);
    box.most[s] = dice.roll(depths[s], num_micro_batches);
  }
  for (std::size_t s = depths.size(); s-- > 1;) {
    box.least[s - 1] = std::max(box.least[s - 1], box.least[s]);
  }
  for (std::size_t s = 1; s < depths.size(); ++s) {
    box.most[s] = std::min(box.most[s], box.most[s - 1]);
  }
  return box;
}

struct Tables {
  search::EarliestStartBound off;
  search::EarliestStartBound shared;

  Tables(const small::Pipeline& pipeline, const Topology& topology)
      : off({pipeline.plan, pipeline.costs, topology, {Contention::Off}}),
        shared({pipeline.plan, pipeline.costs, topology, {Contention::Shared}}) {}
};

}  // namespace

TEST_CASE(
    "no plan is faster than the earliest-start bound of its depths, or of any box around them") {
  small::ProblemMaker maker(2211, {.layers = 6, .devices = 6, .global_batch = 12});
  small::Dice dice(2212);
  int met = 0;        // without contention, by the bound of the depths themselves
  int last_ones = 0;  // what all-reduces and last gradients cost each other
  for (int round = 0; round < small::scaled(10'000); ++round) {
    small::PlanningProblem made = maker.next();
    made.problem.topology.shards_optimizer = dice.chance(30);
    if (dice.chance(30)) small::make_devices_groups(dice, made.problem.profile);
    const ModelProfile& profile = made.problem.profile;
    const Topology topology(made.problem.topology);
    small::PlanShape shape{.micro_batch_size = dice.roll(1, 6),
                           .num_micro_batches = dice.roll(1, 20)};
    shape.stages = small::random_stages(dice, static_cast<std::int32_t>(profile.layers.size()),
                                        topology.device_count(), shape, false);
    shape.depths = small::random_depths(dice, shape.stages.size(), shape.num_micro_batches);
    const small::Pipeline pipeline(profile, made.problem.topology, shape);
    const std::vector<std::int64_t>& depths = pipeline.plan.warmup_depths;
    const search::DepthBox alone{.least = depths, .most = depths};
    const search::DepthBox box = around(dice, depths, shape.num_micro_batches);
    Tables tables(pipeline, topology);
    const Duration off = pipeline.run({.contention = Contention::Off, .record = false}).iteration;
    const Duration shared =
        pipeline.run({.contention = Contention::Shared, .record = false}).iteration;
    const Duration at_off = tables.off.bound(alone);
    const Duration at_shared = tables.shared.bound(alone);
    // Shared links carry parts of nanoseconds; without contention each transfer of a critical path,
    // of which there are at most so many, rounds them up.
    const Duration rounded{2 * shape.num_micro_batches * std::ssize(shape.stages)};
    if (at_off > off || at_shared > shared || at_off > at_shared + rounded ||
        tables.off.bound(box) > at_off || tables.shared.bound(box) > at_shared) {
      FAIL("round " << round << ": timetables " << at_off.ns << " and " << at_shared.ns
                    << ", of the box " << tables.off.bound(box).ns << " and "
                    << tables.shared.bound(box).ns << ", simulated " << off.ns << " and "
                    << shared.ns << "\n"
                    << small::text_of(pipeline));
    }
    if (at_off == off) ++met;
    if (at_shared > at_off) ++last_ones;
  }
  CHECK(met > small::scaled(5000));
  CHECK(last_ones >= small::scaled(20));
}

TEST_CASE("no plan is faster than its bound, whatever the devices and links") {
  small::ProblemMaker maker(2201, {.layers = 6, .devices = 6, .global_batch = 12});
  small::Dice dice(2202);
  int tight = 0;
  int order_decides = 0;
  for (int round = 0; round < small::scaled(10'000); ++round) {
    small::PlanningProblem made = maker.next();
    made.problem.topology.shards_optimizer = dice.chance(30);
    if (dice.chance(30)) small::make_devices_groups(dice, made.problem.profile);
    const ModelProfile& profile = made.problem.profile;
    const Topology topology(made.problem.topology);
    small::PlanShape shape{.micro_batch_size = dice.roll(1, 6),
                           .num_micro_batches = dice.roll(1, 20)};
    shape.stages = small::random_stages(dice, static_cast<std::int32_t>(profile.layers.size()),
                                        topology.device_count(), shape, false);
    shape.depths = small::random_depths(dice, shape.stages.size(), shape.num_micro_batches);
    const small::Pipeline pipeline(profile, made.problem.topology, shape);
    const Duration bound = search::lower_bound(pipeline.plan, pipeline.costs, topology);
    const Duration with_contention =
        search::lower_bound_with_contention(pipeline.plan, pipeline.costs, topology);
    const Duration of_order = search::lower_bound_of_order(pipeline.plan, pipeline.costs);
    Plan deepest = pipeline.plan;  // the bound at a depth holds at any lower one
    deepest.warmup_depths.assign(deepest.stages.size(), deepest.num_micro_batches);
    const Duration at_any_depth = search::lower_bound(deepest, pipeline.costs, topology);
    const Duration at_any_with_contention =
        search::lower_bound_with_contention(deepest, pipeline.costs, topology);
    const Duration off = pipeline.run({.contention = Contention::Off, .record = false}).iteration;
    const Duration shared =
        pipeline.run({.contention = Contention::Shared, .record = false}).iteration;
    if (of_order > off || of_order > shared) {
      FAIL("round " << round << ": bound of order " << of_order.ns << ", simulated " << off.ns
                    << " and " << shared.ns << "\n"
                    << small::text_of(pipeline));
    }
    if (of_order > with_contention) ++order_decides;
    if (bound > off || with_contention > shared || bound > with_contention || at_any_depth > off ||
        at_any_with_contention > shared) {
      FAIL("round " << round << ": bounds " << bound.ns << " and " << with_contention.ns
                    << ", simulated " << off.ns << " and " << shared.ns << "\n"
                    << small::text_of(pipeline));
    }
    if (bound == off && pipeline.plan.stages.size() > 1) ++tight;
  }
  CHECK(tight > small::scaled(1000));
  CHECK(order_decides > small::scaled(500));
}
