#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "../../../support/tasks.h"
#include "dapple/schedule_search/tasks/task_order.h"

namespace dapple::schedule_search {
namespace {

using small::even_tasks;
using small::tasks_of;

TaskProblem pair(std::int64_t limit) {
  return even_tasks({.forward = 2, .backward = 3, .weight_gradient = 1, .send = 1, .limit = limit});
}

TaskOrder pair_order(const std::string& first, const std::string& second) {
  return {tasks_of(first, StageIndex{0}), tasks_of(second, StageIndex{1})};
}

/// "place: message", one a line.
std::string text_of(const std::vector<Violation>& faults) {
  std::string text;
  for (const Violation& fault : faults) text += fault.place + ": " + fault.message + "\n";
  return text;
}

TEST_CASE("a task's text has its letter, and its stage where that is asked for") {
  CHECK(to_text({TaskKind::Forward, StageIndex{2}, 0}, true) == "2F0");
  CHECK(to_text({TaskKind::Backward, StageIndex{2}, 5}, false) == "B5");
  CHECK(to_text({TaskKind::WeightGradient, StageIndex{0}, 11}, true) == "0W11");
}

TEST_CASE("tasks start when their device is free and their input is there") {
  // device 0: F0 0-2, F1 2-4, B0 from 9, as below, to 12, B1 from max(12, 14) to 17, W0 W1 to 19
  // device 1: F0 from 2+1 to 5, B0 to 8 (there at 9), F1 at max(8, 5) to 10, B1 to 13 (at 14),
  //           W0 W1 to 15
  const OrderTimes times = run_order(pair(8), pair_order("F0 F1 B0 B1 W0 W1", "F0 B0 F1 B1 W0 W1"));
  CHECK(times.starts[0] == std::vector<Duration>{{0}, {2}, {9}, {14}, {17}, {18}});
  CHECK(times.starts[1] == std::vector<Duration>{{3}, {5}, {8}, {10}, {13}, {14}});
  CHECK(times.waiting.empty());
  CHECK(times.span == Duration{19});  // device 1 takes 15 - 3
  CHECK(times.makespan == Duration{19});
  CHECK(times.objective(OrderObjective::Span) == times.span);
}

TEST_CASE("the span is of one device, the makespan of all") {
  // With one micro-batch: device 0: F0 0-2, B0 9-12, W0 to 13; device 1: F0 3-5, B0 to 8, then its
  // W0, which takes 20, to 28: 25 after its start.
  TaskProblem problem = pair(8);
  problem.num_micro_batches = 1;
  problem.stages[1].weight_gradient = {20};
  const OrderTimes times = run_order(problem, pair_order("F0 B0 W0", "F0 B0 W0"));
  CHECK(times.span == Duration{25});
  CHECK(times.makespan == Duration{28});
}

TEST_CASE("at a deadlock the first tasks that never start are named") {
  // Device 0 wants B0 before F1; device 1 wants F1 before B0.
  const OrderTimes times = run_order(pair(8), pair_order("F0 B0 F1 B1 W0 W1", "F0 F1 B0 B1 W0 W1"));
  CHECK(times.waiting == std::vector<Task>{{TaskKind::Backward, StageIndex{0}, 0},
                                           {TaskKind::Forward, StageIndex{1}, 1}});
  CHECK(times.starts[0].size() == 1);
}

TEST_CASE("a weight gradient in front of its own backward is a deadlock") {
  TaskProblem problem = pair(8);
  problem.num_micro_batches = 1;
  const OrderTimes times = run_order(problem, pair_order("F0 B0 W0", "F0 W0 B0"));
  CHECK(times.waiting == std::vector<Task>{{TaskKind::Backward, StageIndex{0}, 0},
                                           {TaskKind::WeightGradient, StageIndex{1}, 0}});
}

TEST_CASE("several stages of a device take turns") {
  // Stages 0 and 1 on one device: F0 of stage 0 0-2, of stage 1 from 3 to 5, its B0 to 8, the other
  // B0 from 9 to 12, W's to 14.
  TaskProblem problem = pair(8);
  problem.num_micro_batches = 1;
  problem.stages[1].device = {0};
  problem.memory_limits.pop_back();
  TaskOrder order{tasks_of("F0", StageIndex{0})};
  for (const Task task : tasks_of("F0 B0", StageIndex{1})) order[0].push_back(task);
  for (const Task task : tasks_of("B0 W0", StageIndex{0})) order[0].push_back(task);
  order[0].push_back({TaskKind::WeightGradient, StageIndex{1}, 0});
  const OrderTimes times = run_order(problem, order);
  CHECK(times.starts[0] == std::vector<Duration>{{0}, {3}, {5}, {9}, {12}, {13}});
  CHECK(check_order(problem, order, times.starts).empty());
}

TEST_CASE("what an order takes in memory is checked after each task") {
  // Two forwards hold 4; with a limit of 3 the second is one too many.
  const TaskProblem problem = pair(3);
  const TaskOrder order = pair_order("F0 F1 B0 B1 W0 W1", "F0 B0 F1 B1 W0 W1");
  const OrderTimes times = run_order(problem, order);
  CHECK(text_of(check_order(problem, order, times.starts)) == "0F1: memory is 4 of 3\n");
  CHECK(check_order(pair(4), order, times.starts).empty());
}

TEST_CASE("each broken rule is named") {
  const TaskProblem problem = pair(8);
  const TaskOrder order = pair_order("F0 F1 B0 B1 W0 W1", "F0 B0 F1 B1 W0 W1");
  const TaskStarts starts = run_order(problem, order).starts;
  const auto faults_with = [&](std::size_t device, std::size_t position, std::int64_t start) {
    TaskStarts changed = starts;
    changed[device][position] = {start};
    return text_of(check_order(problem, order, changed));
  };
  CHECK(faults_with(1, 0, 2) == "1F0: starts before 0F0 has ended and sent\n");
  CHECK(faults_with(0, 2, 8) == "0B0: starts before 1B0 has ended and sent\n");
  CHECK(faults_with(0, 1, 1) == "0F1: starts before the task before it ends\n");
  TaskOrder other = order;
  std::swap(other[1][0], other[1][1]);
  CHECK(text_of(check_order(problem, other, starts)).find("1B0: starts before 1F0") !=
        std::string::npos);
  other = order;
  other[1][5] = other[1][4];
  CHECK(text_of(check_order(problem, other, starts)) == "1W0: runs twice\n1W1: never runs\n");
}

TEST_CASE("tasks that are missing, double, unknown or elsewhere are named") {
  TaskProblem problem = pair(8);
  problem.num_micro_batches = 1;
  const auto faults = [&](const TaskOrder& order) {
    TaskStarts starts;
    for (const auto& tasks : order) {
      starts.emplace_back();
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        starts.back().push_back({static_cast<std::int64_t>(100 * i)});
      }
    }
    return text_of(check_order(problem, order, starts));
  };
  CHECK(faults(pair_order("F0 B0", "F0 B0 W0")).find("0W0: never runs") != std::string::npos);
  CHECK(faults(pair_order("F0 F0 B0 W0", "F0 B0 W0")).find("0F0: runs twice") != std::string::npos);
  CHECK(faults(pair_order("F0 F1 B0 W0", "F0 B0 W0")).find("0F1: there is no such task") !=
        std::string::npos);
  TaskOrder swapped = pair_order("F0 B0 W0", "F0 B0 W0");
  std::swap(swapped[0], swapped[1]);
  CHECK(faults(swapped).find("1F0: runs on device 0") != std::string::npos);
  CHECK(faults({{}}) == ": expected a start of every task of every device\n");
}

TEST_CASE("the least memory is a micro-batch's forwards, or a backward that takes more") {
  CHECK(least_memory(pair(8)) == std::vector<Bytes>{{2}, {2}});
  // Both stages on one device: 2 + 2; the backward behind takes 3 more on top.
  TaskProblem problem = pair(8);
  problem.stages[1].device = {0};
  problem.memory_limits.pop_back();
  CHECK(least_memory(problem) == std::vector<Bytes>{{4}});
  problem.stages[1].backward_memory = {3};
  problem.stages[1].weight_gradient_memory = {-5};
  CHECK(least_memory(problem) == std::vector<Bytes>{{7}});
  // That of the stage in front has the other's memory back: 2 + 4 are less than 7.
  problem.stages[0].backward_memory = {4};
  problem.stages[0].weight_gradient_memory = {-6};
  CHECK(least_memory(problem) == std::vector<Bytes>{{7}});
}

TEST_CASE("a problem's faults are all named") {
  CHECK(validate(pair(8)).empty());
  TaskProblem problem = pair(8);
  problem.num_micro_batches = 0;
  problem.stages[0].forward = {-1};
  problem.stages[1].device = {7};
  problem.stages[1].backward_memory = {0};
  problem.memory_limits[0] = {-5};
  CHECK(text_of(validate(problem)) ==
        "/num_micro_batches: expected at least 1, got 0\n"
        "/memory_limits/0: expected 0 to 2^61, got -5\n"
        "/memory_limits/1: expected a stage on the device\n"
        "/stages/0/forward: expected a time from 0 to 1000000000000000 ns, got -1\n"
        "/stages/1: expected a micro-batch to give back what it takes, it leaves 1\n"
        "/stages/1/device: expected one of 2 devices, got 7\n");
  TaskProblem whole = pair(8);
  whole.split_backward = false;
  CHECK(text_of(validate(whole)) ==
        "/stages/0/weight_gradient: expected none, the backward is not split\n"
        "/stages/1/weight_gradient: expected none, the backward is not split\n");
  CHECK(validate(small::unsplit(pair(8))).empty());
  TaskProblem large = pair(8);
  large.stages[0].forward = {kMaxCount};
  large.num_micro_batches = 1'000'000;
  CHECK(text_of(validate(large)) == ": expected a sum of all times below 2^61 ns\n");
  CHECK(text_of(validate(TaskProblem{})) == "/stages: expected at least one stage\n");
}

TEST_CASE("a device ends when what must follow its last task has passed") {
  // As above: device 0 ends at 19, device 1 at 15, 12 after its start at 3.
  TaskProblem problem = pair(8);
  problem.after_last = {{1}, {10}};
  const OrderTimes times = run_order(problem, pair_order("F0 F1 B0 B1 W0 W1", "F0 B0 F1 B1 W0 W1"));
  CHECK(times.makespan == Duration{25});
  CHECK(times.span == Duration{22});
  problem.after_last = {{1}};
  CHECK(text_of(validate(problem)) ==
        "/after_last: expected a time of each of 2 devices, or none, got 1\n");
}

TEST_CASE("what waits at a boundary needs room on both sides") {
  // Device 0 has two micro-batches in flight, device 1 one: one waits, and each holds 4 for one.
  TaskProblem problem = pair(8);
  const auto limited = [&](std::int64_t first, std::int64_t second) {
    const auto limit = [](std::int32_t device, std::int64_t room, Bytes before, Bytes behind) {
      return HoldingLimit{.device = {device},
                          .room = {room},
                          .stages = {{.stage = {device},
                                      .by_forward = {4},
                                      .by_backward = {1},
                                      .before = before,
                                      .behind = behind}}};
    };
    problem.holding_limits = {limit(0, first, {}, {3}), limit(1, second, {2}, {})};
    REQUIRE(validate(problem).empty());
    const TaskOrder order = pair_order("F0 F1 B0 W0 B1 W1", "F0 B0 W0 F1 B1 W1");
    return text_of(check_order(problem, order, run_order(problem, order).starts));
  };
  // 2 * 4 + 1 while a backward runs, and 3 that wait; 4 + 1 and 2.
  CHECK(limited(12, 7).empty());
  CHECK(limited(11, 7) == "device 0: holds 12 with what waits, and has room for 11\n");
  CHECK(limited(12, 6) == "device 1: holds 7 with what waits, and has room for 6\n");
  CHECK(has_order(problem));
  problem.holding_limits.front().room = {4};  // one micro-batch needs 5 in its backward
  CHECK_FALSE(has_order(problem));
}

TEST_CASE("a stage may have fewer in flight than memory allows") {
  TaskProblem problem = pair(8);
  problem.stages[0].most_in_flight = 1;
  const TaskOrder order = pair_order("F0 F1 B0 W0 B1 W1", "F0 B0 W0 F1 B1 W1");
  CHECK(text_of(check_order(problem, order, run_order(problem, order).starts)) ==
        "stage 0: 2 micro-batches in flight, more than 1\n");
}

}  // namespace
}  // namespace dapple::schedule_search
