#include "search/bounds/pass_traffic.h"

#include <algorithm>

namespace dapple::search {
namespace {

/// Returns for how long one pass of this length keeps a NIC busy that has no more than that
/// bandwidth. The rates of its flows are rounded down to 1/1024 byte per second.
Duration busy_in(const PassTraffic& pass, Duration length, Bandwidth nic) {
  const Duration beside = std::min(pass.beside.busy, length - pass.in_turn.time);
  const Duration lost{divide_up(Wide{length.ns}, Wide{1024} * nic.bytes_per_second)};
  return std::max(Duration{}, pass.in_turn.busy + beside - lost);
}

/// Lowers a bound to that of another replica; the first one replaces it.
void lower_to(TrafficBound& bound, const TrafficBound& other, bool is_first) {
  bound.forward = is_first ? other.forward : std::min(bound.forward, other.forward);
  bound.backward = is_first ? other.backward : std::min(bound.backward, other.backward);
}

Bytes size_at(const TransferCost& transfer, PortIndex port) {
  const auto load =
      std::lower_bound(transfer.ports.begin(), transfer.ports.end(), port,
                       [](const PortLoad& some, PortIndex wanted) { return some.port < wanted; });
  return load == transfer.ports.end() || load->port != port ? Bytes{} : load->size;
}

}  // namespace

Duration TrafficBound::sent(std::int64_t num_micro_batches) const {
  return (num_micro_batches - 1) * (forward + backward);
}

Duration TrafficBound::received(std::int64_t num_micro_batches) const {
  return num_micro_batches * forward + (num_micro_batches - 1) * backward;
}

Bandwidth narrowest_nic(const std::vector<DeviceIndex>& devices, const Topology& topology) {
  Bandwidth narrowest{kMaxCount};
  for (const DeviceIndex device : devices) {
    const ServerIndex server = topology.device(device).server;
    const Link nic = topology.nic_link(server, topology.nic_of(device));
    narrowest = std::min(narrowest, nic.bandwidth);
  }
  return narrowest;
}

TrafficBound traffic_bound(const StageCost& stage, const Topology& topology) {
  std::vector<DeviceIndex> devices;
  for (const ReplicaCost& replica : stage.replicas) devices.push_back(replica.device);
  const Bandwidth nic = narrowest_nic(devices, topology);
  TrafficBound least;
  for (const ReplicaCost& replica : stage.replicas) {
    lower_to(least,
             {busy_in(replica.traffic.forward, replica.forward, nic),
              busy_in(replica.traffic.backward, replica.backward, nic)},
             &replica == &stage.replicas.front());
  }
  return least;
}

TrafficBound traffic_bound(const CostModel& costs, const std::vector<ReplicaKind>& replicas,
                           LayerRange layers, bool recomputes, Bandwidth nic) {
  TrafficBound least;
  for (const ReplicaKind& replica : replicas) {
    const LayerTable& table = costs.table(replica.samples, replica.device_kind);
    const StageTraffic traffic = traffic_of(table, layers, recomputes);
    const Duration forward = table.forward(layers);
    const Duration backward = table.backward(layers) + (recomputes ? forward : Duration{});
    lower_to(least,
             {busy_in(traffic.forward, forward, nic), busy_in(traffic.backward, backward, nic)},
             &replica == &replicas.front());
  }
  return least;
}

Duration busiest_nic(const StageCost& stage, const TransferCost& one, const TransferCost& other,
                     std::int64_t num_micro_batches, bool is_out, const Topology& topology) {
  Duration longest;
  for (const ReplicaCost& replica : stage.replicas) {
    const ServerIndex server = topology.device(replica.device).server;
    const std::int32_t nic = topology.nic_of(replica.device);
    const PortIndex port = is_out ? topology.nic_out(server, nic) : topology.nic_in(server, nic);
    const Bytes size = size_at(one, port) + size_at(other, port);
    longest = std::max(
        longest, Duration{divide_down(Wide{num_micro_batches} * size.count * kNanosecondsPerSecond,
                                      topology.nic_link(server, nic).bandwidth.bytes_per_second)});
  }
  return longest;
}

}  // namespace dapple::search
