#include <algorithm>

#include "transports.h"

namespace dapple {

IsolatedTransport::IsolatedTransport(const PlanCost& costs, EventQueue& queue,
                                     std::vector<TimedAction>* actions)
    : costs_(costs), queue_(queue), actions_(actions) {
  for (const BoundaryCost& boundary : costs.boundaries) {
    boundaries_.push_back({make_direction(boundary.forward), make_direction(boundary.backward)});
  }
}

IsolatedTransport::Direction IsolatedTransport::make_direction(
    const std::vector<TransferCost>& patterns) {
  Direction direction;
  std::vector<PortIndex> ports;
  for (const TransferCost& pattern : patterns) {
    for (const PortLoad& load : pattern.ports) ports.push_back(load.port);
  }
  std::sort(ports.begin(), ports.end());
  ports.erase(std::unique(ports.begin(), ports.end()), ports.end());
  direction.free_from.assign(ports.size(), Ticks{});
  for (const TransferCost& pattern : patterns) {
    std::vector<Lane>& lanes = direction.patterns.emplace_back();
    for (const PortLoad& load : pattern.ports) {
      const auto position = std::lower_bound(ports.begin(), ports.end(), load.port) - ports.begin();
      lanes.push_back({static_cast<std::int32_t>(position), load.busy, load.latency});
    }
  }
  return direction;
}

void IsolatedTransport::send(const TransferRequest& request) {
  Boundary& boundary = boundaries_[static_cast<std::size_t>(request.boundary)];
  Direction& direction = request.is_gradient ? boundary.backward : boundary.forward;
  const std::vector<Lane>& pattern =
      direction.patterns[static_cast<std::size_t>(request.micro_batch) % direction.patterns.size()];
  const Ticks ready = to_ticks(request.ready);
  Duration arrival = request.ready;
  Ticks first_start{pattern.empty() ? ready.count : INT64_MAX};
  for (const Lane& lane : pattern) {
    Ticks& free_from = direction.free_from[static_cast<std::size_t>(lane.port)];
    const Ticks start = std::max(ready, free_from);
    first_start = std::min(first_start, start);
    free_from = start + lane.busy;
    arrival = std::max(arrival, round_up(free_from) + lane.latency);
  }
  if (actions_ != nullptr) {
    TimedAction& action = (*actions_)[static_cast<std::size_t>(request.record)];
    action.start = round_up(first_start);
    action.end = arrival;
  }
  queue_.announce(
      to_ticks(arrival),
      request.is_gradient ? Event::Kind::GradientArrived : Event::Kind::ActivationArrived,
      request.receiver, request.micro_batch);
}

void IsolatedTransport::reduce(std::int32_t stage, std::int32_t bucket, Duration start) {
  const AllReduceCost& cost =
      costs_.stages[static_cast<std::size_t>(stage)].buckets[static_cast<std::size_t>(bucket)];
  queue_.announce(to_ticks(start + cost.time), Event::Kind::AllReduceDone, stage, bucket);
}

}  // namespace dapple
