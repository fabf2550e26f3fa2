#include "dapple/planner/candidates/jitter.h"

#include <algorithm>
#include <functional>

#include "dapple/core/parallel.h"
#include "dapple/core/random.h"
#include "dapple/cost/device_speed.h"
#include "dapple/simulate/simulate.h"

namespace dapple::planner {
namespace {

constexpr std::int64_t kMostDraws = 200;
constexpr std::int64_t kLeastDraws = 20;
/// The actions that all draws may take together, above the least number of draws.
constexpr std::int64_t kActions = 200'000'000;

/// Returns the factor on the computations of a device in one draw.
Factor slowness_of(DeviceIndex device, const RandomStream& draw, Factor deviation) {
  constexpr double kCutOff = 3;
  constexpr double kLeast = 0.1;
  const double normal =
      static_cast<double>(draw.normal_pair(static_cast<std::uint64_t>(device.value)).first);
  const double share =
      static_cast<double>(deviation.billionths) / static_cast<double>(kOne.billionths);
  const double factor = std::max(kLeast, 1 + share * std::clamp(normal, -kCutOff, kCutOff));
  return {static_cast<std::int64_t>(factor * static_cast<double>(kOne.billionths))};
}

/// Returns the device that computes longest.
DeviceIndex slowest_device(const StageCost& stage) {
  return std::max_element(stage.replicas.begin(), stage.replicas.end(),
                          [](const ReplicaCost& a, const ReplicaCost& b) {
                            return a.forward + a.backward < b.forward + b.backward;
                          })
      ->device;
}

Duration iteration_with(const ReadyPlan& plan, const std::function<Factor(DeviceIndex)>& slowness,
                        const std::function<bool()>& should_stop) {
  return simulate::simulate(plan.schedule, with_speeds(plan.costs, slowness), plan.topology,
                            {.contention = plan.mode.contention,
                             .transfers = plan.mode.transfers,
                             .record = false,
                             .should_stop = should_stop})
      .iteration;
}

}  // namespace

std::int64_t count_actions(const Schedule& schedule) {
  std::int64_t actions = 0;
  for (const Lane& lane : schedule.lanes) actions += std::ssize(lane.actions);
  return std::max<std::int64_t>(1, actions);
}

std::int64_t draws_of(const Schedule& schedule) {
  return std::clamp(kActions / count_actions(schedule), kLeastDraws, kMostDraws);
}

std::vector<Duration> drawn_iterations(const ReadyPlan& plan, std::size_t count,
                                       const JitterRequest& request, int threads,
                                       const std::function<bool()>& should_stop) {
  const RandomStream random(request.seed);
  std::vector<Duration> times(count);
  parallel_for(count, threads, [&](std::size_t i) {
    const RandomStream draw = random.of(static_cast<std::uint64_t>(i));
    times[i] = iteration_with(
        plan, [&](DeviceIndex device) { return slowness_of(device, draw, request.deviation); },
        should_stop);
  });
  return times;
}

std::vector<Duration> with_slow_devices(const ReadyPlan& plan, int threads) {
  std::vector<Duration> times(plan.costs.stages.size());
  parallel_for(times.size(), threads, [&](std::size_t s) {
    const DeviceIndex slow = slowest_device(plan.costs.stages[s]);
    times[s] = iteration_with(
        plan,
        [&](DeviceIndex device) {
          return device == slow ? Factor{kOne.billionths + kSlowerDevice.billionths} : kOne;
        },
        {});
  });
  return times;
}

Duration percentile(std::vector<Duration> times, std::size_t percent) {
  constexpr std::size_t kWhole = 100;
  const std::size_t place = (times.size() * percent + kWhole - 1) / kWhole - 1;
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(place), times.end());
  return times[place];
}

JitterFigures jitter_of(const Evaluation& evaluation, const Topology& topology, SimulationMode mode,
                        const JitterRequest& request, int threads) {
  const ReadyPlan plan{evaluation.schedule, evaluation.costs, topology, mode};
  const std::int64_t draws = draws_of(evaluation.schedule);
  const std::vector<Duration> times =
      drawn_iterations(plan, static_cast<std::size_t>(draws), request, threads);
  return {.median = percentile(times, 50),
          .ninety_fifth = percentile(times, 95),
          .draws = draws,
          .with_slow_device = with_slow_devices(plan, threads)};
}

}  // namespace dapple::planner
