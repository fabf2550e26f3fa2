#include <catch2/catch.hpp>

#include "../oracle/planner_oracle.h"
#include "dapple/io/documents/documents.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/dapple_search/dapple_search.h"

using namespace dapple;

namespace {

planner::PlannerOptions options_for(const small::Problem& problem, int threads) {
  planner::PlannerOptions options;
  options.global_batch_size = problem.global_batch;
  options.threads = threads;
  return options;
}

/// The fastest of all plans, or nothing if none fits.
Duration fastest_of_all(const small::Problem& problem, const Topology& topology) {
  Duration best{INT64_MAX};
  small::for_each_plan(problem, topology, false, [&](const Plan& plan, const PlanCost& cost) {
    if (search::lower_bound(plan, cost, topology) >= best) return;  // tested on its own below
    best = std::min(
        best, simulate::simulate(generate(plan), cost, topology, {.record = false}).iteration);
  });
  return best;
}

}  // namespace

TEST_CASE("the bound is below every simulated plan of small problems, at its own depths") {
  small::Dice dice(1001);
  std::int64_t plans = 0;
  for (int round = 0; round < small::scaled(100); ++round) {
    const small::Problem problem = small::random_problem(dice, 3, 3);
    const Topology topology(problem.topology);
    small::for_each_plan(problem, topology, true, [&](const Plan& plan, const PlanCost& cost) {
      if (++plans % 7 != 0) return;
      const Duration bound = search::lower_bound(plan, cost, topology);
      const Schedule schedule = generate(plan);
      for (const Contention contention : {Contention::Shared, Contention::Off}) {
        const Duration simulated = simulate::simulate(schedule, cost, topology,
                                                      {.contention = contention, .record = false})
                                       .iteration;
        if (bound > simulated) FAIL(bound.ns << " is above " << simulated.ns);
      }
    });
  }
  CHECK(plans > small::scaled(12000));
}

TEST_CASE("a candidate's bound holds at any depths that fit") {
  small::Dice dice(1002);
  int candidates = 0;
  for (int round = 0; round < small::scaled(150); ++round) {
    const small::Problem problem = small::random_problem(dice, 5, 4);
    const Topology topology(problem.topology);
    const CostModel costs(problem.profile, topology);
    const search::SearchProblem search{.global_batch_size = problem.global_batch,
                                       .micro_batch_size = problem.global_batch};
    for (std::int64_t size = 1; size <= problem.global_batch; ++size) {
      if (problem.global_batch % size != 0) continue;
      search::SearchProblem sized = search;
      sized.micro_batch_size = size;
      const search::SearchOutcome outcome = search::search_dapple(
          costs, sized, {.states_per_cut = 50, .labels_per_state = 4, .candidates = 6});
      for (const search::Candidate& candidate : outcome.candidates) {
        Plan plan{.global_batch_size = problem.global_batch,
                  .micro_batch_size = size,
                  .num_micro_batches = problem.global_batch / size,
                  .family = ScheduleFamily::OneFOneB,
                  .warmup_depths = {},
                  .stages = candidate.stages};
        fill_gradient_buckets(plan, problem.profile);
        std::int64_t depth = plan.num_micro_batches;
        for (std::size_t s = 0; s < plan.stages.size(); ++s) {
          depth = dice.roll(1, depth);
          plan.warmup_depths.push_back(depth);
        }
        const PlanCost cost = costs.plan_cost(plan);
        if (!memory_shortages(cost).empty()) continue;
        ++candidates;
        const Duration simulated =
            simulate::simulate(generate(plan), cost, topology,
                               {.contention = Contention::Off, .record = false})
                .iteration;
        REQUIRE(candidate.bound <= simulated);
      }
    }
  }
  CHECK(candidates > small::scaled(500));
}

TEST_CASE("the planner never beats the best of all plans, fits, and rarely misses it") {
  small::Dice dice(1003);
  int solved = 0;
  int optimal = 0;
  double lost = 0;
  for (int round = 0; round < small::scaled(300); ++round) {
    CAPTURE(round);
    const small::Problem problem = small::random_problem(dice, 4, 3);
    const Topology topology(problem.topology);
    const Duration best = fastest_of_all(problem, topology);
    const auto made = planner::make_plan({problem.profile, topology, options_for(problem, 1)});
    if (best.ns == INT64_MAX) {
      REQUIRE(std::holds_alternative<planner::Infeasible>(made));
      continue;
    }
    REQUIRE(std::holds_alternative<planner::MadePlan>(made));
    const PlanDocument& document = std::get<planner::MadePlan>(made).document;
    REQUIRE(planner::check_plan(document.plan, problem.profile, topology).empty());
    REQUIRE(document.prediction.iteration >= best);
    ++solved;
    if (document.prediction.iteration == best) ++optimal;
    lost +=
        static_cast<double>(document.prediction.iteration.ns) / static_cast<double>(best.ns) - 1;
  }
  CAPTURE(solved, optimal, lost);
  REQUIRE(solved > small::scaled(200));
  CHECK(optimal * 10 >= solved * 9);
  CHECK(lost / solved < 0.01);
}

TEST_CASE("a refusal's remedy of more memory is enough, and a byte less is not") {
  small::Dice dice(1004);
  int refused = 0;
  for (int round = 0; round < small::scaled(120); ++round) {
    small::Problem problem = small::random_problem(dice, 5, 4);
    problem.topology.devices.front().memory = {dice.roll(1, 600)};
    const auto made =
        planner::make_plan({problem.profile, Topology(problem.topology), options_for(problem, 1)});
    const auto* nothing = std::get_if<planner::Infeasible>(&made);
    if (nothing == nullptr) continue;
    ++refused;
    problem.topology.devices.front().memory += nothing->missing();
    CHECK(std::holds_alternative<planner::MadePlan>(planner::make_plan(
        {problem.profile, Topology(problem.topology), options_for(problem, 1)})));
    problem.topology.devices.front().memory -= Bytes{1};
    CHECK(std::holds_alternative<planner::Infeasible>(planner::make_plan(
        {problem.profile, Topology(problem.topology), options_for(problem, 1)})));
  }
  CHECK(refused > small::scaled(10));
}

TEST_CASE("plans are the same with one thread, with two, and again") {
  small::Dice dice(1005);
  for (int round = 0; round < small::scaled(40); ++round) {
    const small::Problem problem = small::random_problem(dice, 8, 6);
    const Topology topology(problem.topology);
    const auto text = [&](int threads) {
      const auto made =
          planner::make_plan({problem.profile, topology, options_for(problem, threads)});
      const auto* plan = std::get_if<planner::MadePlan>(&made);
      if (plan != nullptr) return io::write_plan(plan->document);
      const planner::Infeasible& nothing = std::get<planner::Infeasible>(made);
      return std::to_string(static_cast<int>(nothing.remedy.kind)) + " " +
             std::to_string(nothing.remedy.value) + " " + std::to_string(nothing.missing().count);
    };
    const std::string one = text(1);
    REQUIRE(text(2) == one);
    REQUIRE(text(1) == one);
  }
}
