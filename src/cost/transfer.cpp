#include "dapple/cost/transfer.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "dapple/core/error.h"

namespace dapple {
namespace {

/// Returns into how many parts what the receiver needs is divided among senders, of which this one
/// sends one; 0 if it sends none.
std::int64_t parts_between(const TransferEnd& sender, const TransferEnd& receiver) {
  if (sender.members <= receiver.members) {
    const std::int32_t served = receiver.members / sender.members;
    return receiver.member / served == sender.member ? 1 : 0;
  }
  const std::int32_t senders = sender.members / receiver.members;
  return sender.member / senders == receiver.member ? senders : 0;
}

std::vector<PairFlow> intersect(const std::vector<TransferEnd>& from,
                                const std::vector<TransferEnd>& to,
                                const std::function<Bytes(std::int64_t)>& size_of,
                                const Topology& topology, const TransferShares& shares) {
  std::vector<PairFlow> flows;
  // What each receiver has in all, and to which of them each flow goes.
  std::vector<Bytes> received(to.size());
  std::vector<std::size_t> receivers;
  std::size_t receiver = 0;
  for (const TransferEnd& sender : from) {
    // Both sides are ascending, so receivers that end before this sender begins are complete.
    while (receiver < to.size() && to[receiver].samples.end <= sender.samples.begin) ++receiver;
    for (std::size_t i = receiver; i < to.size() && to[i].samples.begin < sender.samples.end; ++i) {
      const SampleRange overlap{std::max(sender.samples.begin, to[i].samples.begin),
                                std::min(sender.samples.end, to[i].samples.end)};
      const std::int64_t parts = parts_between(sender, to[i]);
      if (parts == 0) continue;
      const Bytes size{divide_up(size_of(overlap.size()).count, parts)};
      if (sender.device == to[i].device || size.count == 0) continue;
      received[i] += size;
      receivers.push_back(i);
      flows.push_back({.from = sender.device,
                       .to = to[i].device,
                       .samples = overlap,
                       .size = {divide_up(size.count, shares.shares)},
                       .received = {},
                       .route = topology.route(sender.device, to[i].device)});
    }
  }
  for (std::size_t i = 0; i < flows.size(); ++i) {
    PairFlow& flow = flows[i];
    flow.received = received[receivers[i]];
    if (shares.shares > 1) flow.route.latency += shares.gather(flow.to, flow.received);
  }
  return flows;
}

/// Makes one load of those on the same port, and sorts them by port.
void add_up(std::vector<PortLoad>& loads) {
  std::sort(loads.begin(), loads.end(),
            [](const PortLoad& a, const PortLoad& b) { return a.port < b.port; });
  std::size_t count = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const PortLoad next = loads[i];
    if (count == 0 || loads[count - 1].port != next.port) {
      loads[count++] = next;
      continue;
    }
    PortLoad& load = loads[count - 1];
    load.size += next.size;
    std::tie(load.latency, load.received) =
        std::max(std::pair{load.latency, load.received}, std::pair{next.latency, next.received});
  }
  loads.resize(count);
}

}  // namespace

TransferCost transfer_cost(const std::vector<TransferEnd>& from, const std::vector<TransferEnd>& to,
                           const std::function<Bytes(std::int64_t)>& size_of,
                           const Topology& topology, const TransferShares& shares) {
  TransferCost cost;
  cost.flows = intersect(from, to, size_of, topology, shares);
  for (const PairFlow& flow : cost.flows) {
    cost.size += flow.size;
    for (const PortIndex port : flow.route.ports) {
      cost.ports.push_back({.port = port,
                            .size = flow.size,
                            .busy = {},
                            .latency = flow.route.latency,
                            .received = flow.received});
    }
  }
  add_up(cost.ports);
  for (PortLoad& load : cost.ports) {
    load.busy = occupation(load.size, topology.ports()[load.port.position()].bandwidth);
    cost.time = std::max(cost.time, round_up(load.busy) + load.latency);
  }
  return cost;
}

}  // namespace dapple
