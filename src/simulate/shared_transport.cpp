#include <algorithm>

#include "dapple/core/error.h"
#include "simulate/transports.h"

namespace dapple::simulate {
namespace {

std::vector<Rate> port_capacities(const Topology& topology) {
  std::vector<Rate> capacities;
  for (const Port& port : topology.ports()) {
    capacities.push_back(port.bandwidth.bytes_per_second * kRatePerBytePerSecond);
  }
  return capacities;
}

}  // namespace

SharedTransport::SharedTransport(const TransportWork& work, const Topology& topology,
                                 TransportOutput output)
    : costs_(work.costs), output_(output), network_(port_capacities(topology)) {
  for (const PairParts& pair : work.parts) {
    pairs_.push_back({make_direction(pair.forward), make_direction(pair.backward)});
  }
  reductions_.resize(costs_.stages.size() + costs_.ties.size());
  if (!has_traffic(costs_)) return;
  for (std::size_t l = 0; l < work.lanes.size(); ++l) {
    add_collectives(work.lanes[l], index_at<LaneIndex>(l), topology);
  }
}

/// Adds what the devices of a lane have to send collectives with: their NICs, in both directions.
void SharedTransport::add_collectives(const Lane& lane, LaneIndex index, const Topology& topology) {
  Collectives collectives{.lane = index, .demands = {}};
  for (const DeviceIndex device : lane.devices) {
    const ServerIndex server = topology.device(device).server;
    const std::int32_t nic = topology.nic_of(device);
    FlowDemand& demand = collectives.demands.emplace_back();
    if (nic < 0) continue;
    demand.ports = {{topology.nic_out(server, nic), kFullWeight},
                    {topology.nic_in(server, nic), kFullWeight}};
  }
  collectives_.push_back(collectives);
  collectives_.push_back(std::move(collectives));
}

SharedTransport::Direction SharedTransport::make_direction(const DirectionParts& transfers) {
  Direction direction;
  std::vector<DeviceIndex> senders;
  for (const TransferParts& transfer : transfers) {
    for (const PairFlow& flow : transfer.cost->flows) senders.push_back(flow.from);
  }
  std::sort(senders.begin(), senders.end());
  senders.erase(std::unique(senders.begin(), senders.end()), senders.end());
  direction.streams.resize(senders.size());
  for (const TransferParts& transfer : transfers) {
    direction.patterns.push_back(make_pattern(transfer, senders));
  }
  return direction;
}

SharedTransport::Pattern SharedTransport::make_pattern(const TransferParts& transfer,
                                                       const std::vector<DeviceIndex>& senders) {
  const TransferCost& cost = *transfer.cost;
  Pattern pattern;
  pattern.transfer = &transfer;
  pattern.flows.resize(senders.size());
  pattern.senders.resize(transfer.sizes.size());
  pattern.parts.resize(transfer.sizes.size());
  pattern.receivers.resize(transfer.receivers.size());
  for (const auto& [part, receiver] : transfer.in_place) {
    ++pattern.receivers[at(receiver)].awaited;
  }
  for (std::size_t f = 0; f < cost.flows.size(); ++f) {
    const PairFlow& flow = cost.flows[f];
    PreparedFlow prepared;
    prepared.demand.cap = flow.route.bandwidth.bytes_per_second * kRatePerBytePerSecond;
    prepared.work = Wide{flow.size.count} * kWorkPerByte;
    for (const PortIndex port : flow.route.ports) {
      prepared.demand.ports.emplace_back(port, kFullWeight);
      const auto load =
          std::lower_bound(cost.ports.begin(), cost.ports.end(), port,
                           [](const PortLoad& l, PortIndex wanted) { return l.port < wanted; });
      prepared.latency = std::max(prepared.latency, load->latency);
    }
    prepared.sender = static_cast<std::int32_t>(
        std::lower_bound(senders.begin(), senders.end(), flow.from) - senders.begin());
    prepared.ends = transfer.flows[f];
    const auto part = at(prepared.ends.part);
    ++pattern.parts[part].flows_left;
    ++pattern.receivers[at(prepared.ends.receiver)].awaited;
    std::vector<std::int32_t>& streams = pattern.senders[part];
    if (std::find(streams.begin(), streams.end(), prepared.sender) == streams.end()) {
      streams.push_back(prepared.sender);
    }
    pattern.flows[at(prepared.sender)].push_back(std::move(prepared));
  }
  return pattern;
}

/// Returns the demand of a phase. At its full rate the phase takes exactly its busy time. A phase
/// that moves no bytes takes next to nothing of its ports.
FlowDemand SharedTransport::demand_of(const AllReducePhase& phase) const {
  FlowDemand demand{.cap = 1, .ports = {}};
  ByteParts busiest;
  for (const ByteParts size : phase.ports.sizes()) busiest = std::max(busiest, size);
  if (busiest.count > 0 && phase.busy.count > 0) {
    demand.cap = divide_down(busiest.count * (kWorkPerByte / kPartsPerByte), phase.busy.count);
  }
  for (const auto& [port, size] : phase.ports) {
    const Wide part = size.count * kFullWeight / std::max<Wide>(1, busiest.count);
    const std::int64_t weight = std::max<std::int64_t>(1, static_cast<std::int64_t>(part));
    demand.ports.emplace_back(port, weight);
    // Rounding may make half of a phase half a tick too short for half of its bytes.
    const Wide most = Wide{network_.capacity(port)} * kFullWeight / weight;
    demand.cap = static_cast<Rate>(std::min<Wide>(demand.cap, most));
  }
  demand.cap = std::max<Rate>(1, demand.cap);
  return demand;
}

SharedTransport::Direction& SharedTransport::direction_of(const TransferRequest& request) {
  return pairs_[at(request.pair)].of(request);
}

/// Starts to track a transfer.
std::int32_t SharedTransport::begin(const Pattern& pattern, const TransferRequest& request) {
  if (free_transfers_.empty()) {
    free_transfers_.push_back(static_cast<std::int32_t>(transfers_.size()));
    transfers_.emplace_back();
  }
  const std::int32_t index = free_transfers_.back();
  free_transfers_.pop_back();
  Transfer& transfer = transfers_[at(index)];
  transfer.request = request;
  transfer.pattern = &pattern;
  transfer.parts_left = static_cast<std::int32_t>(pattern.parts.size());
  // Most transfers have one part and one receiver, for which copying vectors is slow.
  transfer.parts.resize(pattern.parts.size());
  for (std::size_t i = 0; i < pattern.parts.size(); ++i) transfer.parts[i] = pattern.parts[i];
  transfer.receivers.resize(pattern.receivers.size());
  for (std::size_t j = 0; j < pattern.receivers.size(); ++j) {
    transfer.receivers[j] = pattern.receivers[j];
  }
  return index;
}

/// Returns the transfer to which the part belongs: a new one, or the one started by other parts.
std::int32_t SharedTransport::transfer_of(Direction& direction, const Pattern& pattern,
                                          const TransferRequest& request) {
  const auto [entry, is_new] = direction.on_the_way.try_emplace(request.micro_batch, -1);
  if (is_new) entry->second = begin(pattern, request);
  return entry->second;
}

std::optional<Duration> SharedTransport::send(const TransferRequest& request) {
  Direction& direction = direction_of(request);
  const Pattern& pattern =
      direction.patterns[entry_of(request.micro_batch, direction.patterns.size())];
  const bool is_alone = pattern.parts.size() == 1;
  const std::int32_t index =
      is_alone ? begin(pattern, request) : transfer_of(direction, pattern, request);
  Transfer& transfer = transfers_[at(index)];
  Part& part = transfer.parts[at(request.part)];
  part.record = request.record;
  part.arrival = request.ready;
  part.first_start = to_ticks(request.ready);
  for (const auto& [own, receiver] : pattern.transfer->in_place_of(request.part)) {
    arrive(transfer, receiver, request.ready);
  }
  if (part.flows_left == 0) {
    finish(index, request.part);
    return std::nullopt;
  }
  for (const std::int32_t stream : pattern.senders[at(request.part)]) {
    direction.streams[at(stream)].waiting.push_back(index);
    start_next(direction, stream, to_ticks(request.ready));
  }
  return std::nullopt;
}

void SharedTransport::start_next(Direction& direction, std::int32_t stream_index, Ticks now) {
  SendStream& stream = direction.streams[at(stream_index)];
  if (stream.flows_left > 0 || stream.waiting.empty()) return;
  const std::int32_t index = stream.waiting.front();
  stream.waiting.pop_front();
  Transfer& transfer = transfers_[at(index)];
  for (const PreparedFlow& flow : transfer.pattern->flows[at(stream_index)]) {
    Part& part = transfer.parts[at(flow.ends.part)];
    if (!part.started) {
      part.started = true;
      part.first_start = now;
    }
    ++stream.flows_left;
    own(network_.start(now, flow.demand, flow.work),
        {.transfer = index, .reducer = -1, .flow = &flow, .collectives = -1});
  }
}

void SharedTransport::own(std::int32_t flow, const Owner& owner) {
  if (owners_.size() <= at(flow)) owners_.resize(at(flow) + 1);
  owners_[at(flow)] = owner;
}

void SharedTransport::reduce(const Reduction& reduction, Duration start) {
  RunningReduction& running = reductions_[at(reduction.reducer)];
  running.what = reduction;
  running.phase = 0;
  start_phase(reduction.reducer, to_ticks(start));
}

void SharedTransport::communicate(const CollectivesRequest& request) {
  const std::int32_t index = 2 * request.lane.value + (request.is_beside ? 1 : 0);
  Collectives& collectives = collectives_[at(index)];
  check(collectives.flows_left == 0 && request.use.time > Duration{},
        "collectives of a lane begin before the ones before them end, or take no time");
  collectives.flows_left = static_cast<std::int32_t>(collectives.demands.size());
  const Ticks now = to_ticks(request.start);
  const Ticks alone = to_ticks(request.use.time);
  for (FlowDemand& demand : collectives.demands) {
    check(!demand.ports.empty(), "collectives pass servers without NICs");
    const Rate capacity = network_.capacity(demand.ports.front().first);
    demand.cap =
        std::max<Rate>(1, divide_down(Wide{capacity} * request.use.busy.ns, request.use.time.ns));
    own(network_.start(now, demand, Wide{demand.cap} * alone.count),
        {.transfer = -1, .reducer = -1, .flow = nullptr, .collectives = index});
  }
}

void SharedTransport::end_collectives(std::int32_t index, Ticks now) {
  Collectives& collectives = collectives_[at(index)];
  if (--collectives.flows_left > 0) return;
  output_.queue.announce(to_ticks(round_up(now)), Event::Kind::CollectivesDone,
                         collectives.lane.value, 0);
}

/// Starts the next phase of a reduction, or announces its end if no phase is left.
void SharedTransport::start_phase(std::int32_t reducer, Ticks now) {
  RunningReduction& reduction = reductions_[at(reducer)];
  const std::vector<AllReducePhase>& phases = reduction.what.cost(costs_).phases;
  if (reduction.phase == phases.size()) {
    output_.queue.announce(to_ticks(round_up(now)), Event::Kind::AllReduceDone, reducer,
                           reduction.what.bucket);
    return;
  }
  const AllReducePhase& phase = phases[reduction.phase++];
  reduction.demand = demand_of(phase);
  // Rounds without a pause between them are merged into one.
  const bool has_pauses = phase.latency > Duration{};
  own(network_.start_rounds(now, reduction.demand,
                            {.count = has_pauses ? phase.rounds : 1,
                             .busy = phase.busy,
                             .pause = to_ticks(phase.latency)}),
      {.transfer = -1, .reducer = reducer, .flow = nullptr, .collectives = -1});
}

void SharedTransport::flow_ended(const Event& event) {
  if (!network_.end(event.time, event.subject, event.detail)) return;
  const Owner owner = owners_[at(event.subject)];
  if (owner.collectives >= 0) return end_collectives(owner.collectives, event.time);
  if (owner.transfer < 0) return start_phase(owner.reducer, event.time);
  Transfer& transfer = transfers_[at(owner.transfer)];
  Direction& direction = direction_of(transfer.request);
  const auto& [part_number, receiver] = owner.flow->ends;
  const Duration arrival = round_up(event.time) + owner.flow->latency;
  arrive(transfer, receiver, arrival);
  Part& part = transfer.parts[at(part_number)];
  part.arrival = std::max(part.arrival, arrival);
  if (--part.flows_left == 0) finish(owner.transfer, part_number);
  const std::int32_t sender = owner.flow->sender;
  --direction.streams[at(sender)].flows_left;
  start_next(direction, sender, event.time);
}

/// Notes that a part of what a receiver waits for arrives.
void SharedTransport::arrive(Transfer& transfer, std::int32_t number, Duration moment) {
  PendingReceiver& receiver = transfer.receivers[at(number)];
  if (!receiver.arrive(moment)) return;
  output_.announce_arrival(transfer.request, transfer.pattern->transfer->receivers[at(number)],
                           receiver.arrival);
}

/// Notes that all of a part has arrived.
void SharedTransport::finish(std::int32_t index, std::int32_t part_number) {
  Transfer& transfer = transfers_[at(index)];
  const Part& part = transfer.parts[at(part_number)];
  output_.record(part.record, part.first_start, part.arrival);
  if (--transfer.parts_left > 0) return;
  if (transfer.parts.size() > 1) {
    direction_of(transfer.request).on_the_way.erase(transfer.request.micro_batch);
  }
  free_transfers_.push_back(index);
}

void SharedTransport::settle(Ticks now) {
  if (!network_.needs_settling()) return;
  for (const SharedNetwork::Forecast& forecast : network_.settle(now)) {
    output_.queue.announce(forecast.at, Event::Kind::FlowEnded, forecast.flow, forecast.version);
  }
}

}  // namespace dapple::simulate
