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

std::int64_t draws_of(const Schedule& schedule) {
  std::int64_t actions = 1;
  for (const Lane& lane : schedule.lanes) actions += std::ssize(lane.actions);
  return std::clamp(kActions / actions, kLeastDraws, kMostDraws);
}

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

/// Returns the smallest time that at least this many percent of the times do not exceed. Requires:
/// there are times.
Duration percentile(std::vector<Duration> times, std::size_t percent) {
  constexpr std::size_t kWhole = 100;
  const std::size_t place = (times.size() * percent + kWhole - 1) / kWhole - 1;
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(place), times.end());
  return times[place];
}

}  // namespace

Jitter jitter_of(const Evaluation& evaluation, const Topology& topology, SimulationMode mode,
                 const JitterRequest& request) {
  const auto iteration_with = [&](const std::function<Factor(DeviceIndex)>& slowness) {
    return simulate::simulate(
               evaluation.schedule, with_speeds(evaluation.costs, slowness), topology,
               {.contention = mode.contention, .transfers = mode.transfers, .record = false})
        .iteration;
  };
  Jitter jitter;
  jitter.draws = draws_of(evaluation.schedule);
  const RandomStream random(request.seed);
  std::vector<Duration> times(static_cast<std::size_t>(jitter.draws));
  parallel_for(times.size(), request.threads, [&](std::size_t i) {
    const RandomStream draw = random.of(static_cast<std::uint64_t>(i));
    times[i] = iteration_with(
        [&](DeviceIndex device) { return slowness_of(device, draw, request.deviation); });
  });
  jitter.median = percentile(times, 50);
  jitter.ninety_fifth = percentile(times, 95);
  jitter.with_slow_device.resize(evaluation.costs.stages.size());
  parallel_for(jitter.with_slow_device.size(), request.threads, [&](std::size_t s) {
    const DeviceIndex slow = slowest_device(evaluation.costs.stages[s]);
    jitter.with_slow_device[s] = iteration_with([&](DeviceIndex device) {
      return device == slow ? Factor{kOne.billionths + request.slower.billionths} : kOne;
    });
  });
  return jitter;
}

}  // namespace dapple::planner
