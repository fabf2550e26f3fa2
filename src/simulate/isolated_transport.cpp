#include <algorithm>

#include "dapple/core/error.h"
#include "simulate/transports.h"

namespace dapple::simulate {
IsolatedTransport::IsolatedTransport(const TransportWork& work, TransportOutput output)
    : costs_(work.costs), output_(output) {
  for (const PairParts& pair : work.parts) {
    pairs_.push_back({make_direction(pair.forward), make_direction(pair.backward)});
  }
}

IsolatedTransport::Direction IsolatedTransport::make_direction(const DirectionParts& transfers) {
  Direction direction;
  std::vector<PortIndex> ports;
  for (const TransferParts& transfer : transfers) {
    for (const PortLoad& load : transfer.cost->ports) ports.push_back(load.port);
  }
  std::sort(ports.begin(), ports.end());
  ports.erase(std::unique(ports.begin(), ports.end()), ports.end());
  direction.free_from.assign(ports.size(), Ticks{});
  for (const TransferParts& transfer : transfers) {
    Pattern& pattern = direction.patterns.emplace_back();
    pattern.transfer = &transfer;
    for (const PortLoad& load : transfer.cost->ports) {
      const auto port = std::lower_bound(ports.begin(), ports.end(), load.port) - ports.begin();
      pattern.loads.push_back({.port = static_cast<std::int32_t>(port),
                               .busy = load.busy,
                               .latency = load.latency,
                               .parts = {},
                               .receivers = {}});
    }
    if (!transfer.is_whole()) name_ends(pattern);
  }
  return direction;
}

/// Determines which parts and receivers use which port.
void IsolatedTransport::name_ends(Pattern& pattern) {
  const TransferParts& transfer = *pattern.transfer;
  const std::vector<PortLoad>& ports = transfer.cost->ports;
  for (std::size_t f = 0; f < transfer.flows.size(); ++f) {
    for (const PortIndex port : transfer.cost->flows[f].route.ports) {
      const auto found = std::lower_bound(
          ports.begin(), ports.end(), port,
          [](const PortLoad& load, PortIndex wanted) { return load.port < wanted; });
      Load& load = pattern.loads[static_cast<std::size_t>(found - ports.begin())];
      load.parts.push_back(transfer.flows[f].part);
      load.receivers.push_back(transfer.flows[f].receiver);
    }
  }
  pattern.loads_of_part.resize(transfer.sizes.size());
  Transfer& start = pattern.start;
  start.parts.resize(transfer.sizes.size());
  start.receivers.resize(transfer.receivers.size());
  start.left = static_cast<std::int32_t>(start.parts.size());
  for (std::size_t l = 0; l < pattern.loads.size(); ++l) {
    Load& load = pattern.loads[l];
    for (std::vector<std::int32_t>* ends : {&load.parts, &load.receivers}) {
      std::sort(ends->begin(), ends->end());
      ends->erase(std::unique(ends->begin(), ends->end()), ends->end());
    }
    for (const std::int32_t part : load.parts) {
      pattern.loads_of_part[at(part)].push_back(static_cast<std::int32_t>(l));
      ++start.parts[at(part)].loads_left;
    }
    for (const std::int32_t receiver : load.receivers) ++start.receivers[at(receiver)].awaited;
    start.parts_left.push_back(static_cast<std::int32_t>(load.parts.size()));
  }
  for (const auto& [part, receiver] : transfer.in_place) ++start.receivers[at(receiver)].awaited;
}

IsolatedTransport::Service IsolatedTransport::serve(Direction& direction, const Load& load,
                                                    Duration ready) {
  Ticks& free_from = direction.free_from[at(load.port)];
  const Ticks start = std::max(to_ticks(ready), free_from);
  free_from = start + load.busy;
  return {.start = start, .arrival = round_up(free_from) + load.latency};
}

std::optional<Duration> IsolatedTransport::send(const TransferRequest& request) {
  Direction& direction = pairs_[at(request.pair)].of(request);
  const Pattern& pattern =
      direction.patterns[entry_of(request.micro_batch, direction.patterns.size())];
  if (pattern.transfer->is_whole()) return send_whole(direction, pattern, request);
  send_part(direction, pattern, request);
  return std::nullopt;
}

Duration IsolatedTransport::send_whole(Direction& direction, const Pattern& pattern,
                                       const TransferRequest& request) {
  Duration arrival = request.ready;
  Ticks first_start = pattern.loads.empty() ? to_ticks(request.ready) : Ticks::infinite();
  for (const Load& load : pattern.loads) {
    const Service service = serve(direction, load, request.ready);
    first_start = std::min(first_start, service.start);
    arrival = std::max(arrival, service.arrival);
  }
  output_.record(request.record, first_start, arrival);
  return arrival;
}

void IsolatedTransport::send_part(Direction& direction, const Pattern& pattern,
                                  const TransferRequest& request) {
  const auto on_the_way =
      direction.on_the_way.try_emplace(request.micro_batch, pattern.start).first;
  Transfer& transfer = on_the_way->second;
  const auto reach = [&](std::int32_t number, Duration moment) {
    PendingReceiver& receiver = transfer.receivers[at(number)];
    if (!receiver.arrive(moment)) return;
    output_.announce_arrival(request, pattern.transfer->receivers[at(number)], receiver.arrival);
  };
  Transfer::Part& own = transfer.parts[at(request.part)];
  own.record = request.record;
  own.end = request.ready;
  if (own.loads_left == 0) {
    output_.record(own.record, to_ticks(request.ready), request.ready);
    --transfer.left;
  }
  for (const auto& [part, receiver] : pattern.transfer->in_place_of(request.part)) {
    reach(receiver, request.ready);
  }
  for (const std::int32_t number : pattern.loads_of_part[at(request.part)]) {
    if (--transfer.parts_left[at(number)] > 0) continue;
    const Load& load = pattern.loads[at(number)];
    const Service service = serve(direction, load, request.ready);
    for (const std::int32_t carried : load.parts) {
      Transfer::Part& part = transfer.parts[at(carried)];
      part.first_start = std::min(part.first_start, service.start);
      part.end = std::max(part.end, service.arrival);
      if (--part.loads_left > 0) continue;
      output_.record(part.record, part.first_start, part.end);
      --transfer.left;
    }
    for (const std::int32_t receiver : load.receivers) reach(receiver, service.arrival);
  }
  if (transfer.left == 0) direction.on_the_way.erase(on_the_way);
}

void IsolatedTransport::reduce(const Reduction& reduction, Duration start) {
  output_.queue.announce(to_ticks(start + reduction.cost(costs_).time), Event::Kind::AllReduceDone,
                         reduction.reducer, reduction.bucket);
}

void IsolatedTransport::communicate(const CollectivesRequest&) {
  throw Bug("collectives that do not share links are transported");
}

}  // namespace dapple::simulate
