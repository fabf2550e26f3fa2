// Orders of zero-bubble schedules: what is found and proven in a given time, on one core. The first
// three problems are those that the zero-bubble paper's code (ICLR'24) comes with; its eight greedy
// variants reach spans of 193, 183 and 2,517,463 at best.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <limits>

#include "../support/tasks.h"
#include "dapple/schedule_search/order_search.h"

namespace dapple {
namespace {

void search_for(benchmark::State& state, const small::EvenTasks& figures) {
  const schedule_search::TaskProblem problem = small::even_tasks(figures);
  const std::chrono::milliseconds allowed(state.range(0));
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    const auto found = search_order(
        problem, {.evaluations = std::numeric_limits<std::int64_t>::max(), .should_stop = [&] {
                    return std::chrono::steady_clock::now() - start >= allowed;
                  }});
    state.counters["objective"] = static_cast<double>(found->objective.ns);
    state.counters["bound"] = static_cast<double>(found->lower_bound.ns);
    state.counters["list_schedules"] = static_cast<double>(found->work.list_schedules);
    state.counters["moves"] = static_cast<double>(found->work.moves);
  }
}

void prove(benchmark::State& state, const small::EvenTasks& figures) {
  const schedule_search::TaskProblem problem = small::even_tasks(figures);
  for (auto _ : state) benchmark::DoNotOptimize(lower_bound(problem));
}

constexpr small::EvenTasks kFourStages{.stages = 4,
                                       .micro_batches = 12,
                                       .forward = 5,
                                       .backward = 6,
                                       .weight_gradient = 4,
                                       .limit = 10};
constexpr small::EvenTasks kMoreMemory{.stages = 4,
                                       .micro_batches = 12,
                                       .forward = 5,
                                       .backward = 6,
                                       .weight_gradient = 4,
                                       .limit = 14};
// Nothing is proven here: 16 stages with the memory of 1F1B, most of it given back by backwards.
constexpr small::EvenTasks kSixteenStages{.stages = 16,
                                          .micro_batches = 64,
                                          .forward = 1'000,
                                          .backward = 1'200,
                                          .weight_gradient = 700,
                                          .send = 30,
                                          .taken = 4,
                                          .given_by_backward = 3,
                                          .limit = 64};

BENCHMARK_CAPTURE(search_for, four_stages, kFourStages)
    ->Arg(5)
    ->Arg(100)
    ->Arg(10'000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search_for, four_stages_more_memory, kMoreMemory)
    ->Arg(5)
    ->Arg(100)
    ->Arg(10'000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search_for, eight_stages, small::kPublishedProfile)
    ->Arg(5)
    ->Arg(100)
    ->Arg(10'000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search_for, sixteen_stages, kSixteenStages)
    ->Arg(5)
    ->Arg(100)
    ->Arg(10'000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(prove, eight_stages, small::kPublishedProfile)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(prove, sixteen_stages, kSixteenStages)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dapple

BENCHMARK_MAIN();
