#include <algorithm>

#include "dapple/search/bounds/bound.h"

namespace dapple::search {
namespace {

/// Lower bound on the time from one replica's last backward to the end of the stage's all-reduces
/// and of its own optimizer steps, as if the other replicas never delayed the all-reduces.
Duration time_after(const ReplicaCost& replica, const StageCost& stage) {
  StageCost alone;
  alone.backward = replica.backward;
  alone.buckets = stage.buckets;
  alone.bucket_ready = stage.moments[replica.moments].in_backward;
  alone.tied_reduction_from_here = stage.tied_reduction_from_here;
  alone.optimizer_step = stage.optimizer_step;
  alone.bucket_steps = stage.bucket_steps;
  return time_after_last_backward(alone);
}

StageCost quickest_replica(const StageCost& stage) {
  StageCost least;
  least.forward = stage.forward;
  least.backward = stage.backward;
  least.input_gradient = stage.input_gradient;
  least.weight_gradient = stage.weight_gradient;
  std::vector<bool> is_known(stage.moments.size());
  Duration after = Duration::infinite();
  for (const ReplicaCost& replica : stage.replicas) {
    if (is_known[replica.moments]) continue;  // an equal replica has been counted
    is_known[replica.moments] = true;
    least.forward = std::min(least.forward, replica.forward);
    least.backward = std::min(least.backward, replica.backward);
    least.input_gradient = std::min(least.input_gradient, replica.input_gradient);
    least.weight_gradient =
        std::min(least.weight_gradient, replica.backward - replica.input_gradient);
    after = std::min(after, time_after(replica, stage));
  }
  // One reduction stands for all that follows the last backward.
  AllReduceCost reduction;
  reduction.time = after;
  least.buckets = {reduction};
  least.bucket_ready = {least.backward};
  return least;
}

/// The number of pairs of replicas with samples in common.
std::size_t pairs_of(const StageCost& from, const StageCost& to) {
  std::size_t pairs = 0;
  std::size_t receiver = 0;
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (const ReplicaCost& sender : from.replicas) {
    sent += sender.samples;
    while (receiver < to.replicas.size()) {
      ++pairs;
      if (received + to.replicas[receiver].samples > sent) break;
      received += to.replicas[receiver++].samples;
      if (received == sent) break;
    }
  }
  return pairs;
}

/// The load that a pair's flow puts on its narrowest port on idle links.
PortLoad narrowest(const PairFlow& flow) {
  return {.port = flow.route.ports.front(),
          .size = flow.size,
          .busy = occupation(flow.size, flow.route.bandwidth),
          .latency = flow.route.latency};
}

TransferCost quickest_pair(const TransferCost& transfer, std::size_t pairs) {
  TransferCost least;
  // Some pair sends nothing, which takes no time.
  if (transfer.flows.size() < pairs) return least;
  PortLoad load = narrowest(transfer.flows.front());
  for (const PairFlow& flow : transfer.flows) {
    const PortLoad other = narrowest(flow);
    load.busy = std::min(load.busy, other.busy);
    load.latency = std::min(load.latency, other.latency);
  }
  least.time = round_up(load.busy) + load.latency;
  least.ports = {load};
  return least;
}

}  // namespace

namespace {

/// A transfer that takes the least time of these.
TransferCost quickest(const std::vector<TransferCost>& transfers) {
  TransferCost least;
  least.time =
      std::min_element(transfers.begin(), transfers.end(),
                       [](const TransferCost& a, const TransferCost& b) { return a.time < b.time; })
          ->time;
  return least;
}

}  // namespace

/// Computes the figures of (L1) and (L2).
PlanCost least_path_of_dealt(const Plan& plan, const PlanCost& costs) {
  PlanCost least = costs;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (dealt_to(plan.stages[s]) > 1) least.stages[s] = quickest_replica(costs.stages[s]);
  }
  for (BoundaryCost& boundary : least.boundaries) {
    if (boundary.forward.size() == 1) continue;
    boundary = {{quickest(boundary.forward)}, {quickest(boundary.backward)}};
  }
  return least;
}

PlanCost least_path(const PlanCost& costs) {
  PlanCost least;
  least.overlap_slowdown = costs.overlap_slowdown;
  for (const StageCost& stage : costs.stages) least.stages.push_back(quickest_replica(stage));
  for (std::size_t b = 0; b < costs.boundaries.size(); ++b) {
    const StageCost& here = costs.stages[b];
    const StageCost& next = costs.stages[b + 1];
    const BoundaryCost& boundary = costs.boundaries[b];
    least.boundaries.push_back({{quickest_pair(boundary.forward.front(), pairs_of(here, next))},
                                {quickest_pair(boundary.backward.front(), pairs_of(next, here))}});
  }
  return least;
}

}  // namespace dapple::search
