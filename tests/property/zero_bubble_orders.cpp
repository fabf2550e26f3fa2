// Orders that depend on costs and memory, against the oracle on small problems and against their
// own rules on larger ones.

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "../oracle/zero_bubble_oracle.h"
#include "../support/random_problem.h"
#include "../support/random_tasks.h"
#include "../support/tasks.h"
#include "dapple/schedule_search/order_search.h"

using namespace dapple;

namespace {

schedule_search::FoundOrder search_within(const schedule_search::TaskProblem& problem,
                                          std::int64_t evaluations) {
  REQUIRE(validate(problem).empty());
  const std::optional<schedule_search::FoundOrder> found =
      search_order(problem, {.evaluations = evaluations});
  REQUIRE(found);
  REQUIRE(schedule_search::check_order(problem, found->order, found->times.starts).empty());
  REQUIRE(found->objective == found->times.objective(problem.objective));
  REQUIRE(found->lower_bound <= found->objective);
  return *found;
}

/// What an order of the fixed 1F1B kind takes: K forwards, then a backward and a forward in turn.
Duration fixed_1f1b(const schedule_search::TaskProblem& problem, std::int32_t depth) {
  schedule_search::TaskOrder order(problem.memory_limits.size());
  for (std::size_t s = 0; s < order.size(); ++s) {
    const auto add = [&](schedule_search::TaskKind kind, std::int32_t micro_batch) {
      if (micro_batch < problem.num_micro_batches) {
        order[s].push_back({kind, index_at<StageIndex>(s), micro_batch});
      }
    };
    for (std::int32_t m = 0; m < depth; ++m) add(schedule_search::TaskKind::Forward, m);
    for (std::int32_t m = 0; m < problem.num_micro_batches; ++m) {
      add(schedule_search::TaskKind::Backward, m);
      add(schedule_search::TaskKind::Forward, m + depth);
    }
  }
  const schedule_search::OrderTimes times = schedule_search::run_order(problem, order);
  REQUIRE(times.waiting.empty());
  return times.objective(problem.objective);
}

double excess(Duration time, Duration bound) {
  return static_cast<double>(time.ns) / static_cast<double>(bound.ns) - 1;
}

}  // namespace

TEST_CASE("no order of a small problem is better than the one found, nor is the bound above it") {
  small::Dice dice(3001);
  const int rounds = small::scaled(500);
  int proven = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const schedule_search::TaskProblem problem =
        small::random_tasks(dice, {.most_stages = 3, .most_micro_batches = 5});
    const schedule_search::FoundOrder found = search_within(problem, 50'000);
    CHECK_FALSE(small::least_objective_below(problem, found.objective.ns));
    proven += found.lower_bound == found.objective ? 1 : 0;
  }
  CHECK(proven >= rounds * 9 / 10);
}

TEST_CASE("the bound holds with several stages on a device") {
  small::Dice dice(3002);
  int paired = 0;
  for (int round = 0; round < small::scaled(600); ++round) {
    CAPTURE(round);
    const schedule_search::TaskProblem problem =
        small::random_tasks(dice, {.most_stages = 4, .most_micro_batches = 4});
    paired += problem.memory_limits.size() < problem.stages.size() ? 1 : 0;
    const Duration bound = lower_bound(problem);
    CHECK_FALSE(small::least_objective_below(problem, bound.ns));
  }
  CHECK(paired >= small::scaled(100));
}

TEST_CASE("orders of larger problems keep all rules, and the same seed makes the same order") {
  small::Dice dice(3003);
  for (int round = 0; round < small::scaled(60); ++round) {
    CAPTURE(round);
    const schedule_search::TaskProblem problem =
        small::random_tasks(dice, {.most_stages = 10, .most_micro_batches = 24});
    const schedule_search::FoundOrder found = search_within(problem, 1500);
    const schedule_search::FoundOrder again = search_within(problem, 1500);
    REQUIRE(found.order == again.order);
    REQUIRE(found.work == again.work);
  }
}

TEST_CASE("more work never makes the order worse") {
  small::Dice dice(3004);
  for (int round = 0; round < small::scaled(30); ++round) {
    CAPTURE(round);
    const schedule_search::TaskProblem problem =
        small::random_tasks(dice, {.most_stages = 6, .most_micro_batches = 12});
    Duration last = search_within(problem, 1).objective;
    for (const std::int64_t evaluations : {10, 100, 1000, 3000}) {
      const Duration next = search_within(problem, evaluations).objective;
      REQUIRE(next <= last);
      last = next;
    }
  }
}

TEST_CASE("the bubble of H1 is (S-1)(F+I-W) wherever W is no longer than F and I") {
  // Every stage has room for as many micro-batches as there are stages, 1F1B's most. All numbers of
  // stages from 2 to 32; of micro-batches up to 256 some, and all of them in long tests.
  small::Dice dice(3005);
  const int step = small::scaled(1) >= 10 ? 1 : 25;
  for (std::int32_t stages = 2; stages <= 32; ++stages) {
    for (auto micro_batches = static_cast<std::int32_t>(stages + dice.roll(0, step - 1));
         micro_batches <= 256; micro_batches += step) {
      const std::int64_t forward = dice.roll(1, 60);
      const std::int64_t backward = dice.roll(1, 60);
      const std::int64_t weight_gradient = dice.roll(1, std::min(forward, backward));
      CAPTURE(stages, micro_batches, forward, backward, weight_gradient);
      const schedule_search::FoundOrder found =
          search_within(small::even_tasks({.stages = stages,
                                           .micro_batches = micro_batches,
                                           .forward = forward,
                                           .backward = backward,
                                           .weight_gradient = weight_gradient,
                                           .taken = 1,
                                           .given_by_backward = 0,
                                           .limit = stages}),
                        200);
      const Duration expected{micro_batches * (forward + backward + weight_gradient) +
                              (stages - 1) * (forward + backward - weight_gradient)};
      CHECK(found.objective == expected);
      CHECK(found.lower_bound == expected);
    }
  }
}

TEST_CASE(
    "where memory makes neighbouring depths equal, a list-scheduled 1F1B order is nearer to"
    " the bound than the fixed one") {
  small::Dice dice(3005);
  const int rounds = small::scaled(60);
  double fixed = 0;
  double searched = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    schedule_search::TaskProblem problem;
    problem.split_backward = false;
    problem.objective = schedule_search::OrderObjective::Makespan;
    problem.num_micro_batches = static_cast<std::int32_t>(dice.roll(8, 32));
    const auto stages = static_cast<std::int32_t>(dice.roll(3, 8));
    const auto depth = static_cast<std::int32_t>(dice.roll(2, 4));
    const std::int64_t most_transfer = dice.chance(50) ? 0 : 5;
    for (std::int32_t s = 0; s < stages; ++s) {
      problem.stages.push_back(small::random_stage(dice, false, most_transfer));
      problem.stages.back().device = {s};
      problem.stages.back().forward_memory = {1};
      problem.stages.back().backward_memory = {-1};
      problem.memory_limits.push_back({depth});
    }
    const schedule_search::FoundOrder found = search_within(problem, 2000);
    const Duration in_turn = fixed_1f1b(problem, std::min(depth, problem.num_micro_batches));
    REQUIRE(found.objective <= in_turn);
    fixed += excess(in_turn, found.lower_bound);
    searched += excess(found.objective, found.lower_bound);
  }
  // Mean distances to the bound: some 130 % and 2 %.
  CAPTURE(fixed / rounds, searched / rounds);
  CHECK(searched < fixed / 20);
}
