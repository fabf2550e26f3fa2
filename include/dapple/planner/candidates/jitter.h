// How a plan's iteration varies where devices are not equally fast: in a sample of iterations in
// which every device has a random speed, and with one slower device in each stage.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/planner/candidates/evaluate.h"

namespace dapple::planner {

struct JitterRequest {
  /// The standard deviation of the factor on a device's computations, which is normally distributed
  /// around one and cut off three deviations from it and below a tenth.
  Factor deviation;
  std::uint64_t seed = 1;
  /// Devices are slower by this part where one is slowed down in each stage.
  Factor slower{kOne.billionths / 10};
  int threads = 1;
};

struct Jitter {
  /// The median and the 95th percentile of the iterations, each one that was simulated.
  Duration median;
  Duration ninety_fifth;
  /// The number of simulated iterations, fewer for a long plan.
  std::int64_t draws = 0;
  /// By stage, the iteration if the stage's slowest device is slower.
  std::vector<Duration> with_slow_device;
};

/// Simulates a plan that was evaluated in this mode. The result does not depend on the number of
/// threads. O((draws + stages) * actions).
Jitter jitter_of(const Evaluation& evaluation, const Topology& topology, SimulationMode mode,
                 const JitterRequest& request);

}  // namespace dapple::planner
