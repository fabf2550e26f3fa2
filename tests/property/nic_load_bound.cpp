// The bound of what the NICs of each server send, against plans of slow networks.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "../oracle/planner_oracle.h"
#include "../support/clusters.h"
#include "../support/dice.h"
#include "../support/models.h"
#include "../support/random_group.h"
#include "../support/random_pipeline.h"
#include "../support/scaled.h"
#include "dapple/cost/cost_model.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/schedule/schedule.h"
#include "dapple/search/exact/nic_load_bound.h"
#include "dapple/search/search_problem.h"
#include "dapple/simulate/simulate.h"

namespace dapple {
namespace {

using namespace small;

struct Limits {
  std::int64_t layers = 4;
  std::int32_t servers = 2;
  std::int32_t devices = 2;  // per server
  std::int64_t micro_batches = 4;
};

/// Layers whose tensors take a slow network about as long as they take to compute.
Problem random_problem_of_network(Dice& dice, const Limits& limits) {
  Problem problem;
  std::vector<LayerFigures> figures;
  for (std::int64_t l = dice.roll(2, limits.layers); l > 0; --l) {
    figures.push_back({.forward = dice.chance(80) ? dice.roll(1, 40) : 0,
                       .backward = dice.chance(80) ? dice.roll(1, 80) : 0,
                       .output = dice.chance(80) ? dice.roll(0, 60) : 0,
                       .parameters = dice.chance(60) ? dice.roll(0, 200) : 0,
                       .stash = dice.roll(0, 10)});
  }
  problem.profile = model_of(figures);
  if (dice.chance(30)) tie_some(dice, problem.profile, 60);
  if (dice.chance(20)) make_devices_groups(dice, problem.profile);
  std::vector<Link> nics;
  for (std::int64_t n = dice.chance(30) ? limits.devices : 1; n > 0; --n) {
    nics.push_back({bytes_per_ns(dice.roll(1, 3)), {dice.roll(0, 5)}});
  }
  problem.topology = cluster({.servers = limits.servers,
                              .devices = limits.devices,
                              .inside = {bytes_per_ns(dice.roll(2, 40)), {dice.roll(0, 3)}},
                              .nics = nics});
  if (dice.chance(40))
    problem.topology.overlap_slowdown = {dice.roll(1'050'000'000, 2'000'000'000)};
  if (dice.chance(30)) problem.topology.shards_optimizer = true;
  if (dice.chance(30)) { problem.topology.devices.front().memory = {dice.roll(200, 1500)}; }
  return problem;
}

search::SearchProblem search_problem(std::int64_t micro_batch_size, std::int64_t micro_batches) {
  return {.global_batch_size = micro_batch_size * micro_batches,
          .micro_batch_size = micro_batch_size,
          .links_are_shared = true};
}

Duration bound_of(const Problem& problem, const Topology& topology,
                  const search::SearchProblem& search, Duration threshold) {
  return search::nic_load_bound(problem.profile, topology, search, threshold, {});
}

/// A plan with random stages, devices and depths, whether it fits memory or not.
Plan random_plan(Dice& dice, const Problem& problem, const search::SearchProblem& search,
                 std::int32_t devices) {
  PlanShape shape{.micro_batch_size = search.micro_batch_size,
                  .num_micro_batches = search.num_micro_batches(),
                  .depths = {},
                  .stages = {}};
  shape.stages = random_stages(dice, static_cast<std::int32_t>(problem.profile.layers.size()),
                               devices, shape, false);
  shape.depths = random_depths(dice, shape.stages.size(), shape.num_micro_batches);
  return plan_of(problem.profile, shape);
}

}  // namespace

TEST_CASE("no plan of a small cluster is faster than what NICs send allows, and some are close") {
  Dice dice(seeded(2601));
  int problems = 0;
  int close = 0;
  for (int i = 0; i < scaled(600); ++i) {
    Problem problem =
        random_problem_of_network(dice, {.layers = dice.roll(2, 4), .servers = 2, .devices = 2});
    const std::int64_t size = dice.roll(1, 4);
    const search::SearchProblem search = search_problem(size, dice.roll(1, 4));
    problem.global_batch = search.global_batch_size;
    const Topology topology(problem.topology);
    const OracleAnswer best = fastest_plan(problem, topology, {.micro_batch_size = size});
    if (!best.plan) continue;
    ++problems;
    const Duration bound = bound_of(problem, topology, search, best.iteration + Duration{1});
    CAPTURE(i, best.iteration.ns, shape_of(*best.plan));
    REQUIRE(bound <= best.iteration);
    // What was found with one threshold can be proven again with any that is no higher.
    REQUIRE(bound_of(problem, topology, search, bound) == bound);
    if (20 * bound >= 19 * best.iteration) ++close;
  }
  CHECK(problems >= scaled(300));
  CHECK(close >= problems / 2);
}

TEST_CASE("no random plan of more servers and devices is faster either") {
  Dice dice(seeded(2602));
  int plans = 0;
  for (int i = 0; i < scaled(150); ++i) {
    const Problem problem =
        random_problem_of_network(dice, {.layers = dice.roll(2, 7),
                                         .servers = static_cast<std::int32_t>(dice.roll(2, 4)),
                                         .devices = static_cast<std::int32_t>(dice.roll(2, 3))});
    const search::SearchProblem search = search_problem(dice.roll(1, 6), dice.roll(1, 6));
    const Topology topology(problem.topology);
    const CostModel costs(problem.profile, topology);
    Duration least = Duration::infinite();
    std::string fastest;
    for (int draw = 0; draw < 60; ++draw) {
      const Plan plan = random_plan(dice, problem, search, topology.device_count());
      if (!planner::check_plan(plan, problem.profile, topology).empty()) continue;
      ++plans;
      const Duration time =
          simulate::simulate(generate(plan), costs.plan_cost(plan), topology, {.record = false})
              .iteration;
      if (time >= least) continue;
      least = time;
      fastest = stages_of(plan);
    }
    if (least.is_infinite()) continue;
    CAPTURE(i, least.ns, fastest);
    REQUIRE(bound_of(problem, topology, search, least + Duration{1}) <= least);
  }
  CHECK(plans >= scaled(3000));
}

}  // namespace dapple
