#include "dapple/cost/transfer.h"

#include <algorithm>
#include <map>
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
  std::map<DeviceIndex, Bytes> received;
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
      received[to[i].device] += size;
      flows.push_back({.from = sender.device,
                       .to = to[i].device,
                       .samples = overlap,
                       .size = {divide_up(size.count, shares.shares)},
                       .received = {},
                       .route = topology.route(sender.device, to[i].device)});
    }
  }
  for (PairFlow& flow : flows) {
    flow.received = received.at(flow.to);
    if (shares.shares > 1) flow.route.latency += shares.gather(flow.to, flow.received);
  }
  return flows;
}

}  // namespace

TransferCost transfer_cost(const std::vector<TransferEnd>& from, const std::vector<TransferEnd>& to,
                           const std::function<Bytes(std::int64_t)>& size_of,
                           const Topology& topology, const TransferShares& shares) {
  TransferCost cost;
  cost.flows = intersect(from, to, size_of, topology, shares);
  std::map<PortIndex, PortLoad> loads;
  for (const PairFlow& flow : cost.flows) {
    cost.size += flow.size;
    for (const PortIndex port : flow.route.ports) {
      PortLoad& load = loads[port];
      load.port = port;
      load.size += flow.size;
      std::tie(load.latency, load.received) = std::max(
          std::pair{load.latency, load.received}, std::pair{flow.route.latency, flow.received});
    }
  }
  for (auto& [port, load] : loads) {
    load.busy = occupation(load.size, topology.ports()[port.position()].bandwidth);
    cost.time = std::max(cost.time, round_up(load.busy) + load.latency);
    cost.ports.push_back(load);
  }
  return cost;
}

}  // namespace dapple
