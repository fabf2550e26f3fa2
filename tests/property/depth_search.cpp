// All warm-up depths by boxes against all of them one by one.

#include <algorithm>
#include <catch2/catch.hpp>

#include "../support/random_pipeline.h"
#include "../support/random_planning_problem.h"
#include "../support/skips.h"
#include "dapple/planner/candidates/depth_search.h"
#include "dapple/planner/request/planner_options.h"

using namespace dapple;

namespace {

struct Fastest {
  Duration iteration{INT64_MAX};
  std::int64_t depths = 0;  // that fit
};

Fastest one_by_one(const small::Pipeline& pipeline, const planner::DepthLimits& limits,
                   const planner::PlannerOptions& options) {
  Fastest fastest;
  const SimulationMode mode = options.mode();
  const CostModel costs(pipeline.profile, pipeline.topology);
  Plan plan = pipeline.plan;
  const bool deals = deals_micro_batches(plan);
  for (const planner::Depths& depths :
       planner::legal_depths(plan.stages.size(), plan.num_micro_batches)) {
    plan.warmup_depths = planner::lane_depths(plan, depths);
    // Several depths of the pipeline may be the same depths of a plan that deals micro-batches.
    if (deals && planner::pipeline_depths(plan) != depths) continue;
    const bool fit = limits.fit_as_they_are(depths);
    if (options.transfers == Transfers::Overlapped && !options.ignore_memory) {
      REQUIRE(fit == memory_shortages(costs.plan_cost(plan)).empty());
    }
    if (!fit) continue;
    if (deals) REQUIRE(validate(generate(plan), plan).empty());
    const Duration time =
        simulate::simulate(
            generate(plan, mode.replicas), pipeline.costs, pipeline.topology,
            {.contention = mode.contention, .transfers = mode.transfers, .record = false})
            .iteration;
    fastest.iteration = std::min(fastest.iteration, time);
    ++fastest.depths;
  }
  return fastest;
}

}  // namespace

namespace {

bool has_dealt_stage(const small::PlanShape& shape) {
  return std::any_of(shape.stages.begin(), shape.stages.end(), [](const small::StageShape& stage) {
    return stage.dealt && stage.devices.size() > 1;
  });
}

/// Gives every device as much memory as the plan needs at random depths, so that deeper ones do not
/// fit.
void give_just_enough_memory(small::Dice& dice, const ModelProfile& profile,
                             TopologyDescription& description, const small::PlanShape& shape) {
  for (DeviceKind& kind : description.devices) {
    kind.memory = {1};
    kind.reserved = {};
  }
  const small::Pipeline pipeline(profile, description, shape);
  Plan plan = pipeline.plan;
  const planner::Depths depths =
      small::random_depths(dice, shape.stages.size(), shape.num_micro_batches);
  plan.warmup_depths = planner::lane_depths(plan, depths);
  const CostModel costs(pipeline.profile, pipeline.topology);
  Bytes needed{1};
  for (const MemoryShortage& shortage : memory_shortages(costs.plan_cost(plan))) {
    needed = std::max(needed, shortage.needed);
  }
  for (DeviceKind& kind : description.devices) kind.memory = needed;
}

/// How many depths there were, and how many of them were simulated.
struct Counts {
  std::int64_t all = 0;
  std::int64_t simulated = 0;
};

/// What of the plans is not drawn.
struct Kind {
  Replicas replicas = Replicas::Together;
  Transfers transfers = Transfers::Overlapped;
  bool deals = false;
  bool skips_directly = false;
};

Counts search_boxes(const Kind& kind) {
  small::ProblemMaker maker(2221, {.layers = 6, .devices = 6, .global_batch = 12});
  small::Dice dice(2222);
  Counts counts;
  // Few of the plans that are drawn have a stage that deals.
  for (int round = 0; round < small::scaled(kind.deals ? 1200 : 300); ++round) {
    small::PlanningProblem made = maker.next();
    if (kind.skips_directly) {
      small::add_skips(dice, made.problem.profile);
      made.problem.profile.skip_tensors = SkipTensors::Direct;
    }
    const ModelProfile& profile = made.problem.profile;
    const Topology topology(made.problem.topology);
    small::PlanShape shape{.micro_batch_size = dice.roll(1, 6),
                           .num_micro_batches = dice.roll(2, 10)};
    shape.stages = small::random_stages(dice, static_cast<std::int32_t>(profile.layers.size()),
                                        topology.device_count(), shape, kind.deals);
    if (shape.stages.size() > 4) continue;
    if (kind.deals && !has_dealt_stage(shape)) continue;
    shape.depths = small::random_depths(dice, shape.stages.size(), shape.num_micro_batches);
    // Others may leave stages that wait for ever; the search finds its own.
    if (kind.deals) shape.depths.assign(shape.stages.size(), 1);
    if (dice.chance(50)) { give_just_enough_memory(dice, profile, made.problem.topology, shape); }
    const small::Pipeline pipeline(profile, made.problem.topology, shape);
    const CostModel costs(profile, pipeline.topology);
    planner::PlannerOptions options;
    options.ignore_memory = dice.chance(50);
    options.contention = dice.chance(70) ? Contention::Shared : Contention::Off;
    options.replicas = kind.replicas;
    options.transfers = kind.transfers;
    const planner::DepthLimits limits(pipeline.plan, costs, options.ignore_memory, kind.transfers);
    const Fastest fastest = one_by_one(pipeline, limits, options);
    counts.all += fastest.depths;
    planner::SimulatedPlan start{
        .plan = pipeline.plan, .iteration = Duration{INT64_MAX}, .order = 0};
    start.plan.warmup_depths.clear();
    planner::DepthSearch search(start, costs, options);
    Duration best{INT64_MAX};
    for (bool is_settled = false; !is_settled;) {
      const planner::Score score =
          search.advance(best, {.enough = Duration{INT64_MAX}, .actions = 1});
      best = std::min(best, score.best.iteration);
      counts.simulated += score.simulated;
      is_settled = score.is_settled;
      if (score.bound > fastest.iteration || best < fastest.iteration) {
        FAIL("round " << round << ": bound " << score.bound.ns << ", found " << best.ns
                      << ", fastest " << fastest.iteration.ns << "\n"
                      << small::text_of(pipeline));
      }
    }
    if (best != fastest.iteration) {
      FAIL("round " << round << ": found " << best.ns << ", fastest " << fastest.iteration.ns
                    << "\n"
                    << small::text_of(pipeline));
    }
  }
  return counts;
}

}  // namespace

TEST_CASE("boxes of depths lead to the fastest of all, bounded at every moment") {
  const Counts counts = search_boxes({});
  CHECK(counts.all > small::scaled(5000));
  CHECK(counts.simulated < counts.all / 4);
}

TEST_CASE("so they do with independent replicas") {
  const Counts counts = search_boxes({.replicas = Replicas::Independent});
  CHECK(counts.all > small::scaled(5000));
  CHECK(counts.simulated < counts.all / 2);
}

TEST_CASE("so they do where stages deal their micro-batches") {
  const Counts counts = search_boxes({.deals = true});
  CHECK(counts.all > small::scaled(400));
  CHECK(counts.simulated < counts.all);
}

TEST_CASE("so they do where tensors that skip stages are sent directly") {
  const Counts counts = search_boxes({.skips_directly = true});
  CHECK(counts.all > small::scaled(2000));
  CHECK(counts.simulated < counts.all / 2);
}

TEST_CASE("so they do where transfers block") {
  for (const Transfers transfers : {Transfers::Blocking, Transfers::Serial}) {
    const Counts counts = search_boxes({.transfers = transfers});
    CHECK(counts.all > small::scaled(1000));
    CHECK(counts.simulated < counts.all);
  }
}
