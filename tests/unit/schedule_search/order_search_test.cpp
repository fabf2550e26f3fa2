#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <vector>

#include "../../support/tasks.h"
#include "dapple/schedule_search/order_search.h"

namespace dapple::schedule_search {
namespace {

using small::even_tasks;
using small::EvenTasks;

FoundOrder search_within(const TaskProblem& problem, std::int64_t evaluations) {
  const std::optional<FoundOrder> found = search_order(problem, {.evaluations = evaluations});
  REQUIRE(found);
  CHECK(check_order(problem, found->order, found->times.starts).empty());
  CHECK(found->lower_bound <= found->objective);
  return *found;
}

/// Two stages a device, there and back: device d has the stages d and 2S-1-d. Nothing is sent
/// inside a device.
TaskProblem folded(const EvenTasks& even) {
  TaskProblem problem = even_tasks(even);
  const std::int32_t devices = even.stages / 2;
  for (std::int32_t s = devices; s < even.stages; ++s) {
    problem.stages[static_cast<std::size_t>(s)].device = {even.stages - 1 - s};
  }
  problem.memory_limits.resize(static_cast<std::size_t>(devices));
  return problem;
}

TEST_CASE("one stage with one micro-batch takes the sum of its tasks") {
  const FoundOrder found =
      search_within(even_tasks({.stages = 1, .micro_batches = 1, .forward = 2, .backward = 3}), 1);
  CHECK(found.objective == Duration{6});
  CHECK(found.lower_bound == Duration{6});
  CHECK(found.work == OrderSearchWork{1, 0, 1});
}

TEST_CASE("a device waits for its first backward once its forwards are done") {
  // F = 2, B = 3, W = 1. Stage 1 runs F0 B0 from 2 to 7, F1 B1 to 12, F2 B2 to 17. Stage 0 has done
  // its forwards at 6 and waits until 7, B0 W0 to 11, waits until 12, B1 W1 to 16, waits until 17,
  // B2 W2 to 21.
  EvenTasks figures{.micro_batches = 3, .forward = 2, .backward = 3};
  const FoundOrder wide = search_within(even_tasks(figures), 1000);
  CHECK(wide.objective == Duration{21});
  CHECK(wide.lower_bound == Duration{21});
  // With memory for two forwards: F0 F1 to 4, B0 W0 from 7 to 11, which give back one forward's, F2
  // to 13, B1 W1 to 17; stage 1 has F2 at 13 and B2 done at 18, stage 0 B2 W2 from there to 22.
  figures.limit = 4;
  const FoundOrder narrow = search_within(even_tasks(figures), 1000);
  CHECK(narrow.objective == Duration{22});
  CHECK(narrow.lower_bound == Duration{22});
}

TEST_CASE("the makespan counts the way to the last stage and back") {
  // One micro-batch over two stages: 2 + 3 + 3 + 1 in a row, the other W beside.
  TaskProblem problem = even_tasks({.micro_batches = 1, .forward = 1, .backward = 3});
  problem.objective = OrderObjective::Makespan;
  const FoundOrder found = search_within(problem, 100);
  CHECK(found.objective == Duration{1 + 1 + 3 + 3 + 1});
  CHECK(found.lower_bound == found.objective);
}

TEST_CASE("with the memory of 1F1B the bubble is that of ZB-H1") {
  // (S-1)(F+B-W) where W <= F and W <= B; a micro-batch holds its memory until its W.
  for (const std::int32_t stages : {2, 3, 4, 8, 16, 32}) {
    for (const std::int32_t micro_batches : {stages, 2 * stages + 1, 64}) {
      for (const auto& [f, b, w] : {std::array{10, 10, 10}, {10, 12, 7}, {12, 9, 8}}) {
        if (micro_batches < stages) continue;
        CAPTURE(stages, micro_batches, f, b, w);
        const FoundOrder found = search_within(even_tasks({.stages = stages,
                                                           .micro_batches = micro_batches,
                                                           .forward = f,
                                                           .backward = b,
                                                           .weight_gradient = w,
                                                           .taken = 1,
                                                           .given_by_backward = 0,
                                                           .limit = stages}),
                                               200);
        CHECK(found.objective ==
              Duration{micro_batches * (f + b + w) + (stages - 1) * (f + b - w)});
        CHECK(found.lower_bound == found.objective);
      }
    }
  }
}

TEST_CASE("a few milliseconds' work beats the greedy variants of the zero-bubble paper") {
  // Its profile of 8 stages and 32 micro-batches, for which the best of the eight has 2,517,463.
  const FoundOrder found = search_within(even_tasks(small::kPublishedProfile), 400);
  CHECK(found.objective < Duration{2'517'463});
}

TEST_CASE("with twice that memory there is no bubble, as in ZB-H2") {
  // F = B = W: the first device runs 2S-1 forwards before its first backward.
  for (const std::int32_t stages : {2, 4, 8, 16}) {
    const FoundOrder found = search_within(
        even_tasks({.stages = stages, .micro_batches = 4 * stages, .limit = 4 * stages}), 500);
    CHECK(found.objective == Duration{3 * 4 * stages});
  }
}

TEST_CASE("folded stages need no more memory than 1F1B to have no bubble, as in ZB-V") {
  // Two stages a device, F = B = W = 1: work 6 M. Memory is that of 2 S stages, half of it given
  // back by the backward.
  for (const std::int32_t devices : {2, 3, 4, 6, 8}) {
    for (const std::int32_t micro_batches : {2 * devices, 4 * devices}) {
      CAPTURE(devices, micro_batches);
      const FoundOrder found = search_within(
          folded({.stages = 2 * devices, .micro_batches = micro_batches, .limit = 4 * devices}),
          500);
      CHECK(found.objective == Duration{6 * micro_batches});
    }
  }
}

TEST_CASE("list-scheduled 1F1B reaches its closed form, and is proven to") {
  // (M + S - 1)(F + B), B with its weight gradient, S - s micro-batches in flight.
  TaskProblem problem = small::unsplit(even_tasks({.stages = 4, .micro_batches = 8, .taken = 1}));
  problem.objective = OrderObjective::Makespan;
  for (std::size_t s = 0; s < 4; ++s) problem.memory_limits[s] = {static_cast<int>(4 - s)};
  const FoundOrder found = search_within(problem, 200);
  CHECK(found.objective == Duration{(8 + 4 - 1) * 3});
  CHECK(found.lower_bound == found.objective);
}

TEST_CASE("whole forwards before the first backward can make a wait that no order avoids") {
  // S = 3, F = 10, B = 10, nothing sent but 1 each way: the last device has B0 after 10, the one
  // before it after 10 + 1 + 20 + 1 = 32: three forwards and a wait of 2, or a fourth forward and
  // then B0 at 40. The first: after 10 + 2 + 32 + 10 = 54, a wait of 4, or after 62, a wait of 2.
  // Memory for six forwards: a wait of 2 it is, somewhere.
  const TaskProblem problem = even_tasks({.stages = 3,
                                          .micro_batches = 20,
                                          .forward = 10,
                                          .backward = 10,
                                          .weight_gradient = 10,
                                          .send = 1,
                                          .taken = 2,
                                          .limit = 12});
  CHECK(lower_bound(problem) == Duration{20 * 30 + 2});
}

TEST_CASE("without the least memory there is no order") {
  CHECK_FALSE(search_order(even_tasks({.limit = 1}), {}));
}

TEST_CASE("a search is over when its work is used up or it is told to stop") {
  // A problem whose bound is not met at once.
  const TaskProblem problem = even_tasks(small::kPublishedProfile);
  const FoundOrder one = search_within(problem, 1);
  CHECK(one.work.list_schedules + one.work.moves == 1);
  const FoundOrder more = search_within(problem, 700);
  CHECK(more.work.list_schedules + more.work.moves <= 700);
  CHECK(more.work.moves > 0);
  int asked = 0;
  const auto stopped = search_order(problem, {.should_stop = [&] { return ++asked >= 5; }});
  REQUIRE(stopped);
  CHECK(stopped->work.list_schedules == 5);
}

}  // namespace
}  // namespace dapple::schedule_search
