// How many actions per second the simulator executes on one core: 16 or 64 stages of one device
// each, every ordered pair of devices with a link of its own, 4,096 micro-batches. Counted are
// forwards, backwards, sends, all-reduces and optimizer steps.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "../support/pipeline.h"

namespace dapple {
namespace {

constexpr std::int64_t kMicroBatches = 4096;

/// Transfers of 65.536 us beside 1 ms of computation; warm-up depths by policy B, which hide them.
small::Pipeline straight_pipeline(std::size_t count) {
  const std::vector<small::LayerFigures> stages(
      count, {.forward = 1'000'000, .backward = 2'000'000, .output = 65'536});
  small::PlanShape shape{.num_micro_batches = kMicroBatches};
  for (std::size_t s = 0; s < count; ++s) {
    shape.depths.push_back(static_cast<std::int64_t>(2 * (count - s) - 1));
  }
  return small::straight(stages, shape, {small::bytes_per_ns(1), {5'000}});
}

std::int64_t count_actions(const Schedule& schedule) {
  std::int64_t count = 0;
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane.actions) {
      count += stream_of(action.kind) == Stream::None ? 0 : 1;
    }
  }
  return count;
}

/// range(0): stages.
void simulate_stages(benchmark::State& state, const simulate::SimulationOptions& options) {
  const small::Pipeline pipeline = straight_pipeline(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) { benchmark::DoNotOptimize(pipeline.run(options)); }
  state.counters["actions"] =
      benchmark::Counter(static_cast<double>(count_actions(pipeline.schedule)),
                         benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK_CAPTURE(simulate_stages, contention_off,
                  simulate::SimulationOptions{.contention = Contention::Off, .record = false})
    ->Arg(16)
    ->Arg(64)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_stages, contention_shared,
                  simulate::SimulationOptions{.contention = Contention::Shared, .record = false})
    ->Arg(16)
    ->Arg(64)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_stages, contention_off_recorded,
                  simulate::SimulationOptions{.contention = Contention::Off})
    ->Arg(16)
    ->Arg(64)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_stages, contention_shared_recorded,
                  simulate::SimulationOptions{.contention = Contention::Shared})
    ->Arg(16)
    ->Arg(64)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dapple

BENCHMARK_MAIN();
