#include "dapple/cost/device_speed.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace dapple {
namespace {

std::vector<Duration> scaled(std::vector<Duration> times, Factor factor) {
  for (Duration& time : times) time = scale_up(time, factor);
  return times;
}

/// Raises each time to the other one at its position, if that is later.
void raise(std::vector<Duration>& times, const std::vector<Duration>& others) {
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = std::max(times[i], others[i]);
}

/// Changes the times of a stage to those of replicas that each have a speed of their own.
void change(StageCost& stage, const std::function<Factor(DeviceIndex)>& slowness) {
  const std::vector<BucketMoments> moments = std::move(stage.moments);
  const bool recomputes = stage.recomputation.ns > 0;
  stage.moments.clear();
  stage.forward = stage.backward = stage.recomputation = {};
  stage.input_gradient = stage.weight_gradient = {};
  std::fill(stage.bucket_ready.begin(), stage.bucket_ready.end(), Duration{});
  std::fill(stage.bucket_ready_in_weights.begin(), stage.bucket_ready_in_weights.end(), Duration{});
  for (ReplicaCost& replica : stage.replicas) {
    const Factor factor = slowness(replica.device);
    replica.forward = scale_up(replica.forward, factor);
    replica.backward = scale_up(replica.backward, factor);
    replica.input_gradient = scale_up(replica.input_gradient, factor);
    replica.collectives = scale_up(replica.collectives, factor);
    stage.forward = std::max(stage.forward, replica.forward);
    stage.backward = std::max(stage.backward, replica.backward);
    stage.input_gradient = std::max(stage.input_gradient, replica.input_gradient);
    stage.weight_gradient =
        std::max(stage.weight_gradient, replica.backward - replica.input_gradient);
    if (recomputes) stage.recomputation = stage.forward;
    const BucketMoments& before = moments[replica.moments];
    replica.moments = stage.moments.size();
    stage.moments.push_back({.in_backward = scaled(before.in_backward, factor),
                             .in_weights = scaled(before.in_weights, factor)});
    raise(stage.bucket_ready, stage.moments.back().in_backward);
    raise(stage.bucket_ready_in_weights, stage.moments.back().in_weights);
  }
}

}  // namespace

PlanCost with_speeds(PlanCost costs, const std::function<Factor(DeviceIndex)>& slowness) {
  for (StageCost& stage : costs.stages) change(stage, slowness);
  return costs;
}

}  // namespace dapple
