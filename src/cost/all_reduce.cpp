#include "dapple/cost/all_reduce.h"
#include "dapple/core/error.h"

#include <algorithm>
#include <map>

namespace dapple {
namespace {

/// Returns `members` times the bytes that each hop of a ring carries in so many rounds, which are
/// rounds / members of the size; the division is left to the caller so that it rounds once.
Wide carried_times_members(Bytes size, std::int64_t rounds) {
  return Wide{rounds} * size.count;
}

/// Returns how many of `devices`, all of one server, use each of its NICs, by the NIC's number.
std::map<std::int32_t, std::int64_t> nic_users(const std::vector<DeviceIndex>& devices,
                                               const Topology& topology) {
  std::map<std::int32_t, std::int64_t> users;
  for (const DeviceIndex device : devices) ++users[topology.nic_of(device)];
  return users;
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

bool have_same_size(const std::vector<std::vector<DeviceIndex>>& servers) {
  return std::all_of(servers.begin(), servers.end(),
                     [&](const auto& server) { return server.size() == servers[0].size(); });
}

bool hierarchy_applies(const std::vector<std::vector<DeviceIndex>>& servers) {
  return servers.size() >= 2 && servers.front().size() >= 2 && have_same_size(servers);
}

/// Whether all servers are of the same group as the first, without an uplink between it and any
/// other.
bool are_neighbours(const std::vector<std::vector<DeviceIndex>>& servers,
                    const Topology& topology) {
  const ServerIndex first = topology.device(servers.front().front()).server;
  return std::all_of(servers.begin() + 1, servers.end(), [&](const auto& devices) {
    const ServerIndex server = topology.device(devices.front()).server;
    return topology.server(server).group == topology.server(first).group &&
           topology.way_between(first, server).ports.empty();
  });
}

}  // namespace

AllReduceModel::AllReduceModel(const std::vector<DeviceIndex>& devices, const Topology& topology,
                               bool is_sharded)
    : is_sharded_(is_sharded) {
  if (devices.size() < 2) return;
  const std::vector<std::vector<DeviceIndex>> servers = by_server(devices, topology);
  measured_ = measured_over(servers, topology);
  if (servers.size() == 1) {
    if (auto rings = matrix_rings(devices, topology)) {
      alternatives_.push_back({AllReduceAlgorithm::MatrixRings, {std::move(*rings)}});
    }
  }
  if (alternatives_.empty()) {
    alternatives_.push_back({AllReduceAlgorithm::FlatRing, {flat_ring(devices, topology)}});
    if (hierarchy_applies(servers)) {
      alternatives_.push_back(
          {AllReduceAlgorithm::Hierarchical,
           {inside_servers(servers, topology), across_servers(servers, topology)}});
    }
  }
  if (is_sharded_) halve();
}

/// Makes every all-reduce a reduce-scatter.
void AllReduceModel::halve() {
  for (Alternative& alternative : alternatives_) {
    for (Rings& rings : alternative.rings) rings.passes = 1;
  }
  for (MeasuredReduction& measured : measured_) measured.time = {divide_up(measured.time.ns, 2)};
}

std::vector<MeasuredReduction> AllReduceModel::measured_over(
    const std::vector<std::vector<DeviceIndex>>& servers, const Topology& topology) {
  const ServerIndex first = topology.device(servers.front().front()).server;
  for (const BusBandwidthTable& table : topology.group_of(first).bus_bandwidth) {
    const bool is_of_them = static_cast<std::size_t>(table.servers) == servers.size() &&
                            static_cast<std::size_t>(table.devices) == servers.front().size() &&
                            have_same_size(servers) && are_neighbours(servers, topology);
    if (!is_of_them) continue;
    std::vector<MeasuredReduction> measured;
    for (const BusBandwidthTable::Point& point : table.points) {
      measured.push_back({point.size, reduction_time(table, point)});
    }
    return measured;
  }
  return {};
}

void AllReduceModel::sort_by_port(std::vector<PortShare>& ports) {
  std::stable_sort(ports.begin(), ports.end(),
                   [](const PortShare& a, const PortShare& b) { return a.first < b.first; });
}

/// Sets the ports of rings and what passes them. Requires: they are sorted by port.
void AllReduceModel::set_ports(Rings& rings, const std::vector<PortShare>& ports) {
  rings.shares.clear();
  PortPositions positions;
  positions.reserve(ports.size());
  for (const auto& [port, share] : ports) {
    // There are few, and mostly neighbours have the same.
    auto same = std::find(rings.shares.rbegin(), rings.shares.rend(), share);
    if (same == rings.shares.rend()) {
      rings.shares.push_back(share);
      same = rings.shares.rbegin();
    }
    positions.emplace_back(port, static_cast<std::uint32_t>(rings.shares.rend() - same - 1));
  }
  rings.ports = std::make_shared<const PortPositions>(std::move(positions));
}

/// Sets the ports of rings, with the shares of each port merged into one, and limits their
/// bandwidth to what every port can carry.
void AllReduceModel::merge_ports(Rings& rings, std::vector<PortShare> ports,
                                 const Topology& topology) {
  sort_by_port(ports);
  std::vector<PortShare> merged;
  for (const auto& [port, share] : ports) {
    if (merged.empty() || merged.back().first != port) {
      merged.emplace_back(port, share);
      continue;
    }
    Share& sum = merged.back().second;
    check(sum.all == share.all, "shares of one port are of different rings");
    sum.taken = sum.taken + share.taken;
  }
  for (const auto& [port, share] : merged) {
    const Bandwidth most_of_port = topology.ports()[port.position()].bandwidth;
    const Wide most = Wide{most_of_port.bytes_per_second} * share.all.bytes_per_second /
                      share.taken.bytes_per_second;
    rings.bandwidth = {
        static_cast<std::int64_t>(std::clamp<Wide>(most, 1, rings.bandwidth.bytes_per_second))};
  }
  set_ports(rings, merged);
}

AllReduceModel::Rings AllReduceModel::flat_ring(const std::vector<DeviceIndex>& devices,
                                                const Topology& topology) {
  Rings ring;
  ring.members = static_cast<std::int64_t>(devices.size());
  std::vector<PortShare> ports;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Route hop = topology.route(devices[i], devices[(i + 1) % devices.size()]);
    ring.hop_latency = std::max(ring.hop_latency, hop.latency);
    for (const PortIndex port : hop.ports) ports.emplace_back(port, kWhole);
  }
  merge_ports(ring, std::move(ports), topology);
  return ring;
}

/// Returns the lane-disjoint rings over the devices; nothing if their server has no link matrix or
/// no ring of direct links connects them.
std::optional<AllReduceModel::Rings> AllReduceModel::matrix_rings(
    const std::vector<DeviceIndex>& devices, const Topology& topology) {
  const ServerIndex server = topology.device(devices.front()).server;
  if (topology.group_of(server).links.kind != ServerLinks::Kind::Matrix) return std::nullopt;
  const RingPacking packing = topology.pack_rings(devices);
  if (packing.bandwidth.bytes_per_second == 0) return std::nullopt;
  Rings rings;
  rings.members = static_cast<std::int64_t>(devices.size());
  rings.bandwidth = packing.bandwidth;
  rings.hop_latency = packing.latency;
  std::vector<PortShare> ports;
  for (const auto& [port, taken] : packing.ports) {
    ports.emplace_back(port, Share{taken, packing.bandwidth});
  }
  sort_by_port(ports);
  set_ports(rings, ports);
  return rings;
}

/// Returns the rings of a reduce-scatter and an all-gather, each of them half of a ring all-reduce,
/// inside all servers at the same time; the slowest server determines bandwidth and latency.
AllReduceModel::Rings AllReduceModel::inside_servers(
    const std::vector<std::vector<DeviceIndex>>& servers, const Topology& topology) {
  Rings slowest;
  std::vector<PortShare> ports;
  for (const std::vector<DeviceIndex>& server : servers) {
    const std::optional<Rings> matrix = matrix_rings(server, topology);
    const Rings rings = matrix ? *matrix : flat_ring(server, topology);
    slowest.members = rings.members;
    slowest.bandwidth = std::min(slowest.bandwidth, rings.bandwidth);
    slowest.hop_latency = std::max(slowest.hop_latency, rings.hop_latency);
    for (const auto& [port, share] : *rings.ports) ports.emplace_back(port, rings.shares[share]);
  }
  sort_by_port(ports);
  set_ports(slowest, ports);
  return slowest;
}

/// Adds one server's part of the ring across servers: each NIC carries a share in proportion to its
/// bandwidth, divided equally among the devices that use it.
void AllReduceModel::add_server(Rings& rings, std::vector<PortShare>& ports,
                                const std::vector<DeviceIndex>& devices, const Topology& topology) {
  const ServerIndex server = topology.device(devices.front()).server;
  const std::map<std::int32_t, std::int64_t> users = nic_users(devices, topology);
  std::vector<std::int32_t> used;
  for (const auto& [nic, count] : users) used.push_back(nic);
  const Bandwidth together = topology.nics_together(server, used);
  rings.bandwidth = std::min(rings.bandwidth, together);
  for (const std::int32_t nic : used) {
    const Bandwidth own = topology.nic_link(server, nic).bandwidth;
    ports.emplace_back(topology.nic_out(server, nic), Share{own, together});
    ports.emplace_back(topology.nic_in(server, nic), Share{own, together});
  }
  for (const DeviceIndex device : devices) {
    const std::int32_t nic = topology.nic_of(device);
    const Bandwidth own{
        divide_up(topology.nic_link(server, nic).bandwidth.bytes_per_second, users.at(nic))};
    for (const Route& way : {topology.way_to_nic(device), topology.way_from_nic(device)}) {
      for (const PortIndex port : way.ports) ports.emplace_back(port, Share{own, together});
    }
  }
}

/// Returns the ring across servers, over all NICs that their devices use.
AllReduceModel::Rings AllReduceModel::across_servers(
    const std::vector<std::vector<DeviceIndex>>& servers, const Topology& topology) {
  Rings rings;
  rings.members = static_cast<std::int64_t>(servers.size());
  std::vector<PortShare> ports;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const std::vector<DeviceIndex>& here = servers[i];
    const std::vector<DeviceIndex>& there = servers[(i + 1) % servers.size()];
    // Every device sends its part to the device at the same position in the next server.
    for (std::size_t d = 0; d < here.size(); ++d) {
      rings.hop_latency = std::max(rings.hop_latency, topology.route(here[d], there[d]).latency);
    }
    add_server(rings, ports, here, topology);
    const Route uplinks = topology.way_between(topology.device(here.front()).server,
                                               topology.device(there.front()).server);
    for (const PortIndex port : uplinks.ports) ports.emplace_back(port, kWhole);
  }
  merge_ports(rings, std::move(ports), topology);
  return rings;
}

Ticks AllReduceModel::busy(const Rings& rings, Bytes size) {
  return {divide_up(
      carried_times_members(size, rings.rounds()) * kNanosecondsPerSecond * kTicksPerNanosecond,
      Wide{rings.members} * rings.bandwidth.bytes_per_second)};
}

Ticks AllReduceModel::busy(const Alternative& alternative, Bytes size) {
  Ticks sum;
  for (const Rings& rings : alternative.rings) sum = sum + busy(rings, size);
  return sum;
}

Duration AllReduceModel::latency(const Alternative& alternative) {
  Duration sum;
  for (const Rings& rings : alternative.rings) sum += rings.rounds() * rings.hop_latency;
  return sum;
}

AllReduceModel::Fastest AllReduceModel::fastest(Bytes size) const {
  Fastest best;
  if (size.count == 0) return best;
  for (const Alternative& alternative : alternatives_) {
    const Duration time = round_up(busy(alternative, size)) + latency(alternative);
    if (best.alternative == nullptr || time < best.time) best = {&alternative, time};
  }
  return best;
}

Duration AllReduceModel::time(Bytes size) const {
  const Fastest best = fastest(size);
  return best.alternative == nullptr ? Duration{} : measured_time(measured_, size, best.time);
}

bool AllReduceModel::is_as_fast_as(const AllReduceModel& other) const {
  if (measured_ != other.measured_) return false;
  const auto same_rings = [](const Rings& a, const Rings& b) {
    return a.members == b.members && a.bandwidth == b.bandwidth && a.hop_latency == b.hop_latency;
  };
  return std::equal(alternatives_.begin(), alternatives_.end(), other.alternatives_.begin(),
                    other.alternatives_.end(), [&](const Alternative& a, const Alternative& b) {
                      return std::equal(a.rings.begin(), a.rings.end(), b.rings.begin(),
                                        b.rings.end(), same_rings);
                    });
}

void AllReduceModel::move_to(const PortParts& parts) {
  for (Alternative& alternative : alternatives_) {
    for (Rings& rings : alternative.rings) {
      std::vector<PortShare> ports;
      for (const auto& [of_groups, position] : *rings.ports) {
        const Share& share = rings.shares[position];
        for (const auto& [port, devices] : parts.at(of_groups)) {
          ports.emplace_back(port, Share{{share.taken.bytes_per_second * devices}, share.all});
        }
      }
      sort_by_port(ports);
      set_ports(rings, ports);
    }
  }
}

void AllReduceModel::forget_ports() {
  for (Alternative& alternative : alternatives_) {
    for (Rings& rings : alternative.rings) {
      rings.ports = nullptr;
      rings.shares = {};
    }
  }
}

/// Whether rounds * size / (members * bandwidth) and the latencies of all rounds are no larger;
/// busy times are rounded once, so that their order stays.
bool AllReduceModel::is_never_slower(const Rings& a, const Rings& b) {
  return a.rounds() * a.hop_latency <= b.rounds() * b.hop_latency &&
         Wide{a.rounds()} * b.members * b.bandwidth.bytes_per_second <=
             Wide{b.rounds()} * a.members * a.bandwidth.bytes_per_second;
}

bool AllReduceModel::is_never_slower(const Alternative& a, const Alternative& b) {
  if (a.rings.size() == b.rings.size()) {
    return std::equal(a.rings.begin(), a.rings.end(), b.rings.begin(),
                      [](const Rings& x, const Rings& y) { return is_never_slower(x, y); });
  }
  return a.rings.size() == 1 && std::any_of(b.rings.begin(), b.rings.end(), [&](const Rings& y) {
           return is_never_slower(a.rings.front(), y);
         });
}

bool AllReduceModel::is_never_slower_than(const AllReduceModel& other) const {
  if (!measured_.empty() || !other.measured_.empty()) return is_as_fast_as(other);
  if (other.alternatives_.empty()) return alternatives_.empty();
  return std::all_of(
      other.alternatives_.begin(), other.alternatives_.end(), [&](const Alternative& theirs) {
        return std::any_of(alternatives_.begin(), alternatives_.end(),
                           [&](const Alternative& own) { return is_never_slower(own, theirs); });
      });
}

AllReducePhase AllReduceModel::phase(const Rings& rings, Bytes size) {
  const Wide carried = carried_times_members(size, rings.rounds()) * kPartsPerByte;
  std::vector<ByteParts> sizes;
  for (const Share& share : rings.shares) {
    // carried * taken / (members * all), divided in two steps as carried * taken may exceed 128
    // bits.
    const Wide divisor = Wide{rings.members} * share.all.bytes_per_second;
    const Wide taken = share.taken.bytes_per_second;
    sizes.push_back({carried / divisor * taken + carried % divisor * taken / divisor});
  }
  return {.rounds = rings.rounds(),
          .busy = busy(rings, size),
          .latency = rings.hop_latency,
          .ports = {rings.ports, std::move(sizes)}};
}

namespace {

/// Returns the first half of the rounds, a reduce-scatter, or the second half, an all-gather.
/// Remainders of halving are in the second half.
AllReducePhase half_of(const AllReducePhase& whole, bool is_first) {
  const auto part = [&](auto count) { return is_first ? count / 2 : count - count / 2; };
  return {.rounds = whole.rounds / 2,
          .busy = {part(whole.busy.count)},
          .latency = whole.latency,
          .ports = whole.ports.with_each(
              [&](ByteParts size) -> ByteParts { return {part(size.count)}; })};
}

/// Returns what passes each port in all phases.
PortSizes<ByteParts> sum_of(const std::vector<AllReducePhase>& phases) {
  std::vector<std::pair<PortIndex, ByteParts>> all;
  for (const AllReducePhase& phase : phases) {
    for (const auto& [port, size] : phase.ports) all.emplace_back(port, size);
  }
  std::sort(all.begin(), all.end());
  PortPositions ports;
  std::vector<ByteParts> sums;
  for (const auto& [port, size] : all) {
    if (ports.empty() || ports.back().first != port) {
      ports.emplace_back(port, static_cast<std::uint32_t>(sums.size()));
      sums.push_back(size);
    } else {
      sums.back().count += size.count;
    }
  }
  return {std::make_shared<const PortPositions>(std::move(ports)), std::move(sums)};
}

/// Returns a single phase of length `time` for phases that were busy for `before` under the
/// computed algorithm. If it is shorter than that, the ports carry proportionally less, so that no
/// port exceeds its bandwidth.
AllReducePhase measured_phase(Ticks time, Ticks before, const std::vector<AllReducePhase>& phases) {
  PortSizes<ByteParts> ports = sum_of(phases);
  if (time < before) {
    ports = ports.with_each([&](ByteParts size) -> ByteParts {
      return {std::max<Wide>(1, size.count * time.count / before.count)};
    });
  }
  return {.rounds = 1, .busy = time, .latency = {}, .ports = std::move(ports)};
}

}  // namespace

std::vector<std::pair<PortIndex, Bytes>> AllReduceCost::ports() const {
  std::vector<std::pair<PortIndex, Bytes>> whole;
  for (const auto& [port, carried] : sum_of(phases)) {
    whole.emplace_back(port, round_down(carried));
  }
  return whole;
}

std::vector<AllReducePhase> AllReduceModel::phases(const Alternative& alternative,
                                                   Bytes size) const {
  const AllReducePhase outer = phase(alternative.rings.back(), size);
  if (alternative.algorithm != AllReduceAlgorithm::Hierarchical) return {outer};
  const AllReducePhase inside = phase(alternative.rings.front(), size);
  if (is_sharded_) return {inside, outer};
  return {half_of(inside, true), outer, half_of(inside, false)};
}

AllReduceCost AllReduceModel::cost(Bytes size) const {
  AllReduceCost cost;
  cost.size = size;
  const auto [alternative, on_links] = fastest(size);
  if (alternative == nullptr) return cost;
  cost.algorithm = alternative->algorithm;
  cost.busy = busy(*alternative, size);
  cost.latency = latency(*alternative);
  cost.time = on_links;
  cost.phases = phases(*alternative, size);
  if (measured_.empty()) return cost;
  const Duration measured = time(size);
  if (size < measured_.front().size && measured == cost.time) return cost;
  cost.time = measured;
  cost.latency = {};
  cost.phases = {measured_phase(to_ticks(cost.time), cost.busy, cost.phases)};
  cost.busy = to_ticks(cost.time);
  return cost;
}

}  // namespace dapple
