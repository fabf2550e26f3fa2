#include <algorithm>
#include <set>

#include "dapple/cost/costs.h"

namespace dapple {
namespace {

/// What each hop of a ring over `members` carries: 2 (members - 1) / members of the size. As a
/// fraction over `members`, to be rounded once.
Wide carried_times_members(Bytes size, std::int64_t members) {
  return Wide{2} * size.count * (members - 1);
}

/// The NICs that `devices` of one server use, by number.
std::set<std::int32_t> nics_of(const std::vector<DeviceIndex>& devices, const Topology& topology) {
  std::set<std::int32_t> nics;
  for (const DeviceIndex device : devices) nics.insert(topology.nic_of(device));
  return nics;
}

std::vector<std::vector<DeviceIndex>> by_server(const std::vector<DeviceIndex>& devices,
                                                const Topology& topology) {
  std::vector<std::vector<DeviceIndex>> servers;
  for (const DeviceIndex device : devices) {
    if (servers.empty() ||
        topology.device(servers.back().front()).server != topology.device(device).server) {
      servers.emplace_back();
    }
    servers.back().push_back(device);
  }
  return servers;
}

bool hierarchy_applies(const std::vector<std::vector<DeviceIndex>>& servers) {
  const std::size_t members = servers.front().size();
  return servers.size() >= 2 && members >= 2 &&
         std::all_of(servers.begin(), servers.end(),
                     [&](const auto& server) { return server.size() == members; });
}

}  // namespace

AllReduceModel::AllReduceModel(const std::vector<DeviceIndex>& devices, const Topology& topology) {
  if (devices.size() < 2) return;
  const std::vector<std::vector<DeviceIndex>> servers = by_server(devices, topology);
  if (servers.size() == 1) {
    if (auto rings = matrix_rings(devices, topology)) {
      alternatives_.push_back({AllReduceAlgorithm::MatrixRings, {std::move(*rings)}});
      return;
    }
  }
  alternatives_.push_back({AllReduceAlgorithm::FlatRing, {flat_ring(devices, topology)}});
  if (!hierarchy_applies(servers)) return;
  alternatives_.push_back({AllReduceAlgorithm::Hierarchical,
                           {inside_servers(servers, topology), across_servers(servers, topology)}});
}

AllReduceModel::Phase AllReduceModel::flat_ring(const std::vector<DeviceIndex>& devices,
                                                const Topology& topology) {
  Phase phase;
  phase.members = static_cast<std::int64_t>(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Route hop = topology.route(devices[i], devices[(i + 1) % devices.size()]);
    phase.bandwidth = std::min(phase.bandwidth, hop.bandwidth);
    phase.hop_latency = std::max(phase.hop_latency, hop.latency);
    for (const PortIndex port : hop.ports) phase.ports.push_back({port, {1}, {1}});
  }
  return phase;
}

/// Nothing if the devices are not on a link matrix or have no ring of direct links.
std::optional<AllReduceModel::Phase> AllReduceModel::matrix_rings(
    const std::vector<DeviceIndex>& devices, const Topology& topology) {
  const ServerIndex server = topology.device(devices.front()).server;
  if (topology.group_of(server).links.kind != ServerLinks::Kind::Matrix) return std::nullopt;
  const RingPacking rings = topology.pack_rings(devices);
  if (rings.bandwidth.bytes_per_second == 0) return std::nullopt;
  Phase phase;
  phase.members = static_cast<std::int64_t>(devices.size());
  phase.bandwidth = rings.bandwidth;
  phase.hop_latency = rings.latency;
  for (const auto& [port, taken] : rings.ports) {
    phase.ports.push_back({port, taken, rings.bandwidth});
  }
  return phase;
}

/// A reduce-scatter and an all-gather inside every server at once, half a ring all-reduce each, at
/// the pace of the slowest server.
AllReduceModel::Phase AllReduceModel::inside_servers(
    const std::vector<std::vector<DeviceIndex>>& servers, const Topology& topology) {
  Phase slowest;
  for (const std::vector<DeviceIndex>& server : servers) {
    const std::optional<Phase> rings = matrix_rings(server, topology);
    const Phase phase = rings ? *rings : flat_ring(server, topology);
    slowest.members = phase.members;
    slowest.bandwidth = std::min(slowest.bandwidth, phase.bandwidth);
    slowest.hop_latency = std::max(slowest.hop_latency, phase.hop_latency);
    slowest.ports.insert(slowest.ports.end(), phase.ports.begin(), phase.ports.end());
  }
  return slowest;
}

/// The ring across servers, over all NICs that take part.
AllReduceModel::Phase AllReduceModel::across_servers(
    const std::vector<std::vector<DeviceIndex>>& servers, const Topology& topology) {
  Phase phase;
  phase.members = static_cast<std::int64_t>(servers.size());
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const std::vector<DeviceIndex>& here = servers[i];
    const std::vector<DeviceIndex>& there = servers[(i + 1) % servers.size()];
    // Every device hands its part to the one at its place in the next server.
    for (std::size_t d = 0; d < here.size(); ++d) {
      phase.hop_latency = std::max(phase.hop_latency, topology.route(here[d], there[d]).latency);
    }
    const ServerIndex server = topology.device(here.front()).server;
    const std::set<std::int32_t> nics = nics_of(here, topology);
    Bandwidth together;
    for (const std::int32_t nic : nics) {
      together = together + topology.nic_link(server, nic).bandwidth;
    }
    phase.bandwidth = std::min(phase.bandwidth, together);
    for (const std::int32_t nic : nics) {
      const Bandwidth own = topology.nic_link(server, nic).bandwidth;
      phase.ports.push_back({topology.nic_out(server, nic), own, together});
      phase.ports.push_back({topology.nic_in(server, nic), own, together});
    }
  }
  return phase;
}

Ticks AllReduceModel::busy(const Alternative& alternative, Bytes size) {
  Ticks sum;
  for (const Phase& phase : alternative.phases) {
    sum = sum + Ticks{divide_up(carried_times_members(size, phase.members) * kNanosecondsPerSecond *
                                    kTicksPerNanosecond,
                                Wide{phase.members} * phase.bandwidth.bytes_per_second)};
  }
  return sum;
}

Duration AllReduceModel::latency(const Alternative& alternative) {
  Duration sum;
  for (const Phase& phase : alternative.phases) {
    sum += 2 * (phase.members - 1) * phase.hop_latency;
  }
  return sum;
}

const AllReduceModel::Alternative* AllReduceModel::fastest(Bytes size) const {
  if (size.count == 0) return nullptr;
  const Alternative* best = nullptr;
  Duration least;
  for (const Alternative& alternative : alternatives_) {
    const Duration time = round_up(busy(alternative, size)) + latency(alternative);
    if (best != nullptr && time >= least) continue;
    best = &alternative;
    least = time;
  }
  return best;
}

Duration AllReduceModel::time(Bytes size) const {
  const Alternative* alternative = fastest(size);
  if (alternative == nullptr) return {};
  return round_up(busy(*alternative, size)) + latency(*alternative);
}

bool AllReduceModel::is_as_fast_as(const AllReduceModel& other) const {
  const auto same_phase = [](const Phase& a, const Phase& b) {
    return a.members == b.members && a.bandwidth == b.bandwidth && a.hop_latency == b.hop_latency;
  };
  return std::equal(alternatives_.begin(), alternatives_.end(), other.alternatives_.begin(),
                    other.alternatives_.end(), [&](const Alternative& a, const Alternative& b) {
                      return std::equal(a.phases.begin(), a.phases.end(), b.phases.begin(),
                                        b.phases.end(), same_phase);
                    });
}

AllReduceCost AllReduceModel::cost(Bytes size) const {
  AllReduceCost cost;
  cost.size = size;
  const Alternative* alternative = fastest(size);
  if (alternative == nullptr) return cost;
  cost.algorithm = alternative->algorithm;
  cost.busy = busy(*alternative, size);
  cost.latency = latency(*alternative);
  cost.time = round_up(cost.busy) + cost.latency;
  for (const Phase& phase : alternative->phases) {
    for (const PortShare& share : phase.ports) {
      cost.ports.emplace_back(
          share.port,
          Bytes{divide_up(carried_times_members(size, phase.members) * share.taken.bytes_per_second,
                          Wide{phase.members} * share.all.bytes_per_second)});
    }
  }
  std::sort(cost.ports.begin(), cost.ports.end());
  return cost;
}

}  // namespace dapple
