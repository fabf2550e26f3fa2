#include "dapple/search/bound.h"

#include <algorithm>

namespace dapple {
namespace {

/// Line 3: with `depth` slots, at most that many micro-batches are between their forward and the
/// end of their backward.
Duration bound_by_slots(const StageBound& stage, Duration round_trip,
                        std::int64_t num_micro_batches) {
  const std::int64_t depth = std::min(stage.depth_limit, num_micro_batches);
  const std::int64_t rest = num_micro_batches - 1;
  const Duration waves =
      (rest / depth + 1) * round_trip + (rest % depth) * std::max(stage.forward, stage.backward);
  const Duration drained =
      round_trip + rest * stage.backward + (num_micro_batches - depth) * stage.forward;
  const Duration filled =
      round_trip + rest * stage.forward + (num_micro_batches - depth) * stage.backward;
  return std::max({waves, drained, filled});
}

/// All transfers but one, one after another through a port, rounded down once.
Duration queue_at(const PortBound& port, std::int64_t num_micro_batches) {
  return {divide_down(Wide{num_micro_batches - 1} * port.size.count * kNanosecondsPerSecond,
                      port.bandwidth.bytes_per_second)};
}

void add_ports(std::vector<PortBound>& ports, const TransferCost& cost, const Topology& topology) {
  for (const PortLoad& load : cost.ports) {
    ports.push_back({.size = load.size,
                     .bandwidth = topology.ports()[load.port.position()].bandwidth,
                     .time = round_up(load.busy) + load.latency});
  }
}

}  // namespace

BoundLabel bound_of_last(const StageBound& stage, std::int64_t num_micro_batches) {
  BoundLabel label;
  label.round_trip = stage.forward + stage.backward;
  label.span = num_micro_batches * label.round_trip;
  label.end = label.span + stage.after_backward;
  return label;
}

BoundLabel bound_with_front(const StageBound& stage, const BoundaryBound& boundary,
                            const BoundLabel& behind, std::int64_t num_micro_batches) {
  const Duration there_and_back =
      stage.forward + boundary.forward + boundary.backward + stage.backward;
  BoundLabel label;
  label.round_trip = there_and_back + behind.round_trip;
  label.span =
      std::max(num_micro_batches * (stage.forward + stage.backward), there_and_back + behind.span);
  label.span = std::max(label.span, bound_by_slots(stage, label.round_trip, num_micro_batches));
  for (const PortBound& port : boundary.forward_ports) {
    label.span =
        std::max(label.span, stage.forward + queue_at(port, num_micro_batches) + port.time +
                                 behind.round_trip + boundary.backward + stage.backward);
  }
  for (const PortBound& port : boundary.backward_ports) {
    label.span =
        std::max(label.span, stage.forward + boundary.forward + behind.round_trip +
                                 queue_at(port, num_micro_batches) + port.time + stage.backward);
  }
  label.end =
      std::max(stage.forward + boundary.forward + behind.end, label.span + stage.after_backward);
  return label;
}

Duration exposed_all_reduce(const StageCost& stage) {
  Duration done;
  for (std::size_t k = 0; k < stage.buckets.size(); ++k) {
    done = std::max(done, stage.bucket_ready[k]) + stage.buckets[k].time;
  }
  return std::max(Duration{}, done - stage.backward);
}

Duration lower_bound(const Plan& plan, const PlanCost& costs, const Topology& topology) {
  BoundLabel label;
  for (std::size_t i = costs.stages.size(); i-- > 0;) {
    const StageCost& cost = costs.stages[i];
    const StageBound stage{.forward = cost.forward,
                           .backward = cost.backward,
                           .after_backward = exposed_all_reduce(cost) + cost.optimizer_step,
                           .depth_limit = plan.warmup_depths[i]};
    if (i + 1 == costs.stages.size()) {
      label = bound_of_last(stage, plan.num_micro_batches);
      continue;
    }
    const TransferCost& forward = costs.boundaries[i].forward.front();
    const TransferCost& backward = costs.boundaries[i].backward.front();
    BoundaryBound boundary{.forward = forward.time,
                           .backward = backward.time,
                           .forward_ports = {},
                           .backward_ports = {}};
    add_ports(boundary.forward_ports, forward, topology);
    add_ports(boundary.backward_ports, backward, topology);
    label = bound_with_front(stage, boundary, label, plan.num_micro_batches);
  }
  return label.end;
}

}  // namespace dapple
