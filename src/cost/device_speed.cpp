#include "dapple/cost/device_speed.h"

#include <utility>
#include <vector>

#include "cost/slowest_replica.h"

namespace dapple {
namespace {

std::vector<Duration> scaled(std::vector<Duration> times, Factor factor) {
  for (Duration& time : times) time = scale_up(time, factor);
  return times;
}

/// Changes the times of a stage to those of replicas that each have a speed of their own.
void change(StageCost& stage, const std::function<Factor(DeviceIndex)>& slowness) {
  const std::vector<BucketMoments> moments = std::move(stage.moments);
  const bool recomputes = stage.recomputation.ns > 0;
  stage.moments.clear();
  stage.forward = stage.backward = stage.recomputation = {};
  stage.input_gradient = stage.weight_gradient = {};
  stage.bucket_ready.clear();
  stage.bucket_ready_in_weights.clear();
  for (ReplicaCost& replica : stage.replicas) {
    const Factor factor = slowness(replica.device);
    replica.forward = scale_up(replica.forward, factor);
    replica.backward = scale_up(replica.backward, factor);
    replica.input_gradient = scale_up(replica.input_gradient, factor);
    replica.collectives = scale_up(replica.collectives, factor);
    slow_down_to(stage, replica, recomputes ? replica.forward : Duration{});
    const BucketMoments& before = moments[replica.moments];
    replica.moments = stage.moments.size();
    stage.moments.push_back({.in_backward = scaled(before.in_backward, factor),
                             .in_weights = scaled(before.in_weights, factor),
                             .traffic_in_backward = before.traffic_in_backward,
                             .traffic_in_weights = before.traffic_in_weights});
    raise_to(stage.bucket_ready, stage.moments.back().in_backward);
    raise_to(stage.bucket_ready_in_weights, stage.moments.back().in_weights);
  }
}

}  // namespace

PlanCost with_speeds(PlanCost costs, const std::function<Factor(DeviceIndex)>& slowness) {
  for (StageCost& stage : costs.stages) change(stage, slowness);
  return costs;
}

}  // namespace dapple
