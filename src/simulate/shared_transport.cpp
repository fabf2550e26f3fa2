#include <algorithm>

#include "dapple/core/error.h"
#include "transports.h"

namespace dapple {
namespace {

std::vector<Rate> port_capacities(const Topology& topology) {
  std::vector<Rate> capacities;
  for (const Port& port : topology.ports()) {
    capacities.push_back(port.bandwidth.bytes_per_second * kRatePerBytePerSecond);
  }
  return capacities;
}

}  // namespace

SharedTransport::SharedTransport(const PlanCost& costs, const Topology& topology, EventQueue& queue,
                                 std::vector<TimedAction>* actions)
    : costs_(costs), queue_(queue), actions_(actions), network_(port_capacities(topology)) {
  for (const BoundaryCost& boundary : costs.boundaries) {
    boundaries_.push_back({make_direction(boundary.forward), make_direction(boundary.backward)});
  }
  reductions_.resize(costs.stages.size());
}

SharedTransport::Direction SharedTransport::make_direction(
    const std::vector<TransferCost>& patterns) const {
  Direction direction;
  std::vector<DeviceIndex> senders;
  for (const TransferCost& cost : patterns) {
    for (const PairFlow& flow : cost.flows) senders.push_back(flow.from);
  }
  std::sort(senders.begin(), senders.end());
  senders.erase(std::unique(senders.begin(), senders.end()), senders.end());
  direction.streams.resize(senders.size());
  for (const TransferCost& cost : patterns) {
    Pattern& pattern = direction.patterns.emplace_back();
    for (const PairFlow& flow : cost.flows) {
      PreparedFlow prepared;
      prepared.demand.cap = flow.route.bandwidth.bytes_per_second * kRatePerBytePerSecond;
      prepared.work = Wide{flow.size.count} * kWorkPerByte;
      for (const PortIndex port : flow.route.ports) {
        prepared.demand.ports.emplace_back(port, kFullWeight);
        const auto load = std::find_if(cost.ports.begin(), cost.ports.end(),
                                       [&](const PortLoad& l) { return l.port == port; });
        prepared.latency = std::max(prepared.latency, load->latency);
      }
      prepared.sender = static_cast<std::int32_t>(
          std::lower_bound(senders.begin(), senders.end(), flow.from) - senders.begin());
      if (std::find(pattern.senders.begin(), pattern.senders.end(), prepared.sender) ==
          pattern.senders.end()) {
        pattern.senders.push_back(prepared.sender);
      }
      pattern.flows.push_back(std::move(prepared));
    }
  }
  return direction;
}

/// At its full rate the phase takes just as long as it is busy. One that moves nothing takes next
/// to nothing of its ports.
FlowDemand SharedTransport::demand_of(const AllReducePhase& phase) const {
  FlowDemand demand{.cap = 1, .ports = {}};
  Bytes busiest;
  for (const auto& [port, size] : phase.ports) busiest = std::max(busiest, size);
  if (busiest.count > 0 && phase.busy.count > 0) {
    demand.cap = divide_down(Wide{busiest.count} * kWorkPerByte, phase.busy.count);
  }
  for (const auto& [port, size] : phase.ports) {
    const Wide part = Wide{size.count} * kFullWeight / std::max<std::int64_t>(1, busiest.count);
    const std::int64_t weight = std::max<std::int64_t>(1, static_cast<std::int64_t>(part));
    demand.ports.emplace_back(port, weight);
    // Sizes are rounded up, so that a few bytes could ask for more than the port has.
    const Wide most = Wide{network_.capacity(port)} * kFullWeight / weight;
    demand.cap = static_cast<Rate>(std::min<Wide>(demand.cap, most));
  }
  demand.cap = std::max<Rate>(1, demand.cap);
  return demand;
}

SharedTransport::Direction& SharedTransport::direction_of(const TransferRequest& request) {
  Boundary& boundary = boundaries_[static_cast<std::size_t>(request.boundary)];
  return request.is_gradient ? boundary.backward : boundary.forward;
}

void SharedTransport::send(const TransferRequest& request) {
  Direction& direction = direction_of(request);
  const Pattern& pattern =
      direction.patterns[static_cast<std::size_t>(request.micro_batch) % direction.patterns.size()];
  if (free_transfers_.empty()) {
    free_transfers_.push_back(static_cast<std::int32_t>(transfers_.size()));
    transfers_.emplace_back();
  }
  const std::int32_t index = free_transfers_.back();
  free_transfers_.pop_back();
  Transfer& transfer = transfers_[static_cast<std::size_t>(index)];
  transfer = {.request = request,
              .pattern = &pattern,
              .flows_left = static_cast<std::int32_t>(pattern.flows.size()),
              .arrival = request.ready,
              .first_start = to_ticks(request.ready),
              .started = false};
  if (pattern.flows.empty()) {
    finish(transfer);
    free_transfers_.push_back(index);
    return;
  }
  for (const std::int32_t stream : pattern.senders) {
    direction.streams[static_cast<std::size_t>(stream)].waiting.push_back(index);
    start_next(direction, stream, to_ticks(request.ready));
  }
}

void SharedTransport::start_next(Direction& direction, std::int32_t stream_index, Ticks now) {
  SendStream& stream = direction.streams[static_cast<std::size_t>(stream_index)];
  if (stream.flows_left > 0 || stream.waiting.empty()) return;
  const std::int32_t index = stream.waiting.front();
  stream.waiting.pop_front();
  Transfer& transfer = transfers_[static_cast<std::size_t>(index)];
  if (!transfer.started) {
    transfer.started = true;
    transfer.first_start = now;
  }
  for (const PreparedFlow& flow : transfer.pattern->flows) {
    if (flow.sender != stream_index) continue;
    ++stream.flows_left;
    own(network_.start(now, flow.demand, flow.work),
        {.transfer = index, .stage = 0, .flow = &flow});
  }
}

void SharedTransport::own(std::int32_t flow, const Owner& owner) {
  if (owners_.size() <= static_cast<std::size_t>(flow)) {
    owners_.resize(static_cast<std::size_t>(flow) + 1);
  }
  owners_[static_cast<std::size_t>(flow)] = owner;
}

const AllReduceCost& SharedTransport::cost_of(std::int32_t stage, std::int32_t bucket) const {
  return costs_.stages[static_cast<std::size_t>(stage)].buckets[static_cast<std::size_t>(bucket)];
}

void SharedTransport::reduce(std::int32_t stage, std::int32_t bucket, Duration start) {
  RunningReduction& reduction = reductions_[static_cast<std::size_t>(stage)];
  reduction.bucket = bucket;
  reduction.phase = 0;
  start_phase(stage, to_ticks(start));
}

/// Or announces the end, if there is no phase left.
void SharedTransport::start_phase(std::int32_t stage, Ticks now) {
  RunningReduction& reduction = reductions_[static_cast<std::size_t>(stage)];
  const std::vector<AllReducePhase>& phases = cost_of(stage, reduction.bucket).phases;
  if (reduction.phase == phases.size()) {
    queue_.announce(to_ticks(round_up(now)), Event::Kind::AllReduceDone, stage, reduction.bucket);
    return;
  }
  const AllReducePhase& phase = phases[reduction.phase++];
  reduction.demand = demand_of(phase);
  // Rounds without a pause between them are one.
  const bool has_pauses = phase.latency > Duration{};
  own(network_.start_rounds(now, reduction.demand,
                            {.count = has_pauses ? phase.rounds : 1,
                             .busy = phase.busy,
                             .pause = to_ticks(phase.latency)}),
      {.transfer = -1, .stage = stage, .flow = nullptr});
}

void SharedTransport::flow_ended(const Event& event) {
  if (!network_.end(event.time, event.subject, event.detail)) return;
  const Owner owner = owners_[static_cast<std::size_t>(event.subject)];
  if (owner.transfer < 0) {
    start_phase(owner.stage, event.time);
    return;
  }
  Transfer& transfer = transfers_[static_cast<std::size_t>(owner.transfer)];
  transfer.arrival = std::max(transfer.arrival, round_up(event.time) + owner.flow->latency);
  Direction& direction = direction_of(transfer.request);
  const std::int32_t sender = owner.flow->sender;
  if (--transfer.flows_left == 0) {
    finish(transfer);
    free_transfers_.push_back(owner.transfer);
  }
  --direction.streams[static_cast<std::size_t>(sender)].flows_left;
  start_next(direction, sender, event.time);
}

void SharedTransport::finish(Transfer& transfer) {
  const TransferRequest& request = transfer.request;
  if (actions_ != nullptr) {
    TimedAction& action = (*actions_)[static_cast<std::size_t>(request.record)];
    action.start = round_up(transfer.first_start);
    action.end = transfer.arrival;
  }
  queue_.announce(
      to_ticks(transfer.arrival),
      request.is_gradient ? Event::Kind::GradientArrived : Event::Kind::ActivationArrived,
      request.receiver, request.micro_batch);
}

void SharedTransport::settle(Ticks now) {
  if (!network_.needs_settling()) return;
  for (const SharedNetwork::Forecast& forecast : network_.settle(now)) {
    queue_.announce(forecast.at, Event::Kind::FlowEnded, forecast.flow, forecast.version);
  }
}

std::unique_ptr<TransportLayer> make_transport(const PlanCost& costs, const Topology& topology,
                                               Contention contention, TransportOutput output) {
  if (contention == Contention::Off) {
    return std::make_unique<IsolatedTransport>(costs, output.queue, output.actions);
  }
  return std::make_unique<SharedTransport>(costs, topology, output.queue, output.actions);
}

}  // namespace dapple
