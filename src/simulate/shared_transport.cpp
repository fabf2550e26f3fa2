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
  for (const StageCost& stage : costs.stages) {
    std::vector<PreparedReduction>& buckets = reductions_.emplace_back();
    for (const AllReduceCost& bucket : stage.buckets) buckets.push_back(prepare(bucket));
  }
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

SharedTransport::PreparedReduction SharedTransport::prepare(const AllReduceCost& cost) const {
  PreparedReduction prepared;
  Bytes busiest;
  for (const auto& [port, size] : cost.ports) busiest = std::max(busiest, size);
  if (cost.busy.count == 0 || busiest.count == 0) return prepared;
  prepared.demand.cap = divide_down(Wide{busiest.count} * kWorkPerByte, cost.busy.count);
  for (const auto& [port, size] : cost.ports) {
    const std::int64_t weight =
        std::max<std::int64_t>(1, divide_down(Wide{size.count} * kFullWeight, busiest.count));
    prepared.demand.ports.emplace_back(port, weight);
    // Sizes are rounded up, so that a few bytes could ask for more than the port has.
    const Wide most = Wide{network_.capacity(port)} * kFullWeight / weight;
    prepared.demand.cap = static_cast<Rate>(std::min<Wide>(prepared.demand.cap, most));
  }
  prepared.demand.cap = std::max<Rate>(1, prepared.demand.cap);
  // Alone, the flow must take exactly `busy` ticks, so its work is its full rate times those.
  prepared.work = Wide{prepared.demand.cap} * cost.busy.count;
  return prepared;
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
        {.transfer = index, .stage = 0, .bucket = 0, .flow = &flow});
  }
}

void SharedTransport::own(std::int32_t flow, const Owner& owner) {
  if (owners_.size() <= static_cast<std::size_t>(flow)) {
    owners_.resize(static_cast<std::size_t>(flow) + 1);
  }
  owners_[static_cast<std::size_t>(flow)] = owner;
}

void SharedTransport::reduce(std::int32_t stage, std::int32_t bucket, Duration start) {
  const PreparedReduction& reduction =
      reductions_[static_cast<std::size_t>(stage)][static_cast<std::size_t>(bucket)];
  if (reduction.work == 0) {
    const AllReduceCost& cost =
        costs_.stages[static_cast<std::size_t>(stage)].buckets[static_cast<std::size_t>(bucket)];
    queue_.announce(to_ticks(start + cost.time), Event::Kind::AllReduceDone, stage, bucket);
    return;
  }
  own(network_.start(to_ticks(start), reduction.demand, reduction.work),
      {.transfer = -1, .stage = stage, .bucket = bucket, .flow = nullptr});
}

void SharedTransport::flow_ended(const Event& event) {
  if (!network_.end(event.time, event.subject, event.detail)) return;
  const Owner owner = owners_[static_cast<std::size_t>(event.subject)];
  if (owner.transfer < 0) {
    const AllReduceCost& cost = costs_.stages[static_cast<std::size_t>(owner.stage)]
                                    .buckets[static_cast<std::size_t>(owner.bucket)];
    queue_.announce(to_ticks(round_up(event.time) + cost.latency), Event::Kind::AllReduceDone,
                    owner.stage, owner.bucket);
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
    queue_.announce(forecast.end, Event::Kind::FlowEnded, forecast.flow, forecast.version);
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
