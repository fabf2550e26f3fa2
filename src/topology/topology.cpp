#include "dapple/topology/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "topology/check_description.h"
#include "topology/fill_order.h"
#include "topology/ring_packing.h"

namespace dapple {
namespace {

constexpr PortIndex kNoPort{-1};

std::size_t to_position(std::int32_t number) {
  return static_cast<std::size_t>(number);
}

const LinkKind* direct_link(const ServerGroup& group, std::int32_t from, std::int32_t to) {
  const int kind = group.links.matrix(from, to);
  return kind == kNoLink ? nullptr : &group.links.kinds[to_position(kind)];
}

bool has_matrix(const ServerGroup& group) {
  return group.devices > 1 && group.links.kind == ServerLinks::Kind::Matrix;
}

Lanes lanes_of(const LinkKind& kind) {
  return {kind.lanes, {kind.link.bandwidth.bytes_per_second / kind.lanes}};
}

HopWidths hop_widths(const ServerGroup& group) {
  const std::size_t size = to_position(group.devices);
  HopWidths hops{size, std::vector<std::int64_t>(size * size)};
  const std::vector<std::int32_t> roots = roots_by_device(group);
  const auto root_width = [&](std::int32_t device) {
    return group.pcie_roots[to_position(roots[to_position(device)])].link.bandwidth;
  };
  const auto one_way = [&](std::int32_t from, std::int32_t to) {
    if (const LinkKind* link = direct_link(group, from, to)) {
      return link->link.bandwidth.bytes_per_second;
    }
    Bandwidth width = group.links.host_path->bandwidth;
    if (!roots.empty() && roots[to_position(from)] != roots[to_position(to)]) {
      width = std::min({width, root_width(from), root_width(to)});
    }
    return width.bytes_per_second;
  };
  for (std::int32_t from = 0; from < group.devices; ++from) {
    for (std::int32_t to = 0; to < group.devices; ++to) {
      if (from == to) continue;
      hops.widths[to_position(from) * size + to_position(to)] =
          std::min(one_way(from, to), one_way(to, from));
    }
  }
  return hops;
}

void append(Route& route, const Route& way) {
  route.ports.insert(route.ports.end(), way.ports.begin(), way.ports.end());
  route.latency += way.latency;
  route.bandwidth = std::min(route.bandwidth, way.bandwidth);
}

/// Returns ":3", or ":6-7" for the device numbered 3 of groups of two.
std::string numbers_of(std::int32_t device, std::int64_t group_size) {
  const std::int64_t first = device * group_size;
  if (group_size == 1) return fmt::format(":{}", first);
  return fmt::format(":{}-{}", first, first + group_size - 1);
}

/// Returns "node3", or "node[6-7]" for the servers numbered 3 of groups of two.
std::string server_name(const ServerGroup& group, std::int32_t number, std::int64_t grouped) {
  if (grouped == 1) return group.name + std::to_string(number);
  const std::int64_t first = number * grouped;
  return fmt::format("{}[{}-{}]", group.name, first, first + grouped - 1);
}

std::vector<std::size_t> fill_numbers(const ServerGroup& group) {
  if (has_matrix(group)) return widest_path(hop_widths(group));
  std::vector<std::size_t> numbers;
  for (std::int32_t number = 0; number < group.devices; ++number) {
    numbers.push_back(to_position(number));
  }
  return numbers;
}

}  // namespace

/// A cache of packings by server group and by the devices' numbers in their server, with the ports
/// of the group's first server, as the same few sets of devices are used on many servers. A packing
/// depends on the key alone, so it does not matter which thread computes it.
struct Topology::RingMemory {
  std::mutex mutex;
  std::map<std::pair<std::int32_t, std::vector<std::int32_t>>, RingPacking> packings;
};

Topology::Topology(TopologyDescription description, const std::string& source_name)
    : description_(std::move(description)), ring_memory_(std::make_shared<RingMemory>()) {
  std::vector<Violation> violations = check_description(description_);
  if (!violations.empty()) { throw Error(ErrorKind::BadInput, source_name, std::move(violations)); }
  expand();
  add_ports();
  find_interchangeable();
  make_fill_orders();
}

void Topology::expand() {
  std::map<std::string, std::int32_t> kinds;
  for (const DeviceKind& kind : description_.devices) {
    kinds.emplace(kind.name, static_cast<std::int32_t>(kinds.size()));
  }
  for (std::size_t group_number = 0; group_number < description_.servers.size(); ++group_number) {
    const ServerGroup& group = description_.servers[group_number];
    const std::vector<std::int32_t> nics = nics_by_device(group);
    group_roots_.push_back({roots_by_device(group), roots_by_nic(group)});
    for (std::int32_t number = 0; number < group.count; ++number) {
      const auto server = index_at<ServerIndex>(servers_.size());
      servers_.push_back({server_name(group, number, description_.servers_of_group),
                          static_cast<std::int32_t>(group_number),
                          index_at<DeviceIndex>(devices_.size()), group.devices});
      for (std::int32_t device = 0; device < group.devices; ++device) {
        std::string name =
            servers_.back().name +
            numbers_of(device, description_.group_size / description_.servers_of_group);
        device_by_name_.emplace(name, index_at<DeviceIndex>(devices_.size()));
        devices_.push_back({std::move(name), server, device, kinds.at(group.device)});
        device_nic_.push_back(nics.empty() ? -1 : nics[to_position(device)]);
      }
    }
  }
}

PortIndex Topology::add_port(std::string name, Bandwidth bandwidth) {
  ports_.push_back({std::move(name), bandwidth});
  return index_at<PortIndex>(ports_.size() - 1);
}

void Topology::add_ports() {
  for (const Server& server : servers_) {
    first_port_.push_back(static_cast<std::int32_t>(ports_.size()));
    add_device_ports(server);
    add_matrix_ports(server);
    add_nic_ports(server);
    add_root_ports(server);
  }
  add_uplinks();
}

void Topology::add_device_ports(const Server& server) {
  const ServerGroup& group = description_.servers[to_position(server.group)];
  std::optional<Bandwidth> bandwidth;
  if (has_matrix(group)) {
    if (group.links.host_path) bandwidth = group.links.host_path->bandwidth;
  } else if (group.devices > 1) {
    bandwidth = group.links.port.bandwidth;
  }
  for (std::int32_t number = 0; number < server.device_count; ++number) {
    const std::string& name = devices_[to_position(server.first_device.value + number)].name;
    device_ports_.push_back(bandwidth ? add_port(name + " out", *bandwidth) : kNoPort);
    device_ports_.push_back(bandwidth ? add_port(name + " in", *bandwidth) : kNoPort);
  }
}

void Topology::add_matrix_ports(const Server& server) {
  const ServerGroup& group = description_.servers[to_position(server.group)];
  if (!has_matrix(group)) {
    first_matrix_port_.push_back(-1);
    return;
  }
  first_matrix_port_.push_back(static_cast<std::int32_t>(matrix_ports_.size()));
  for (std::int32_t from = 0; from < group.devices; ++from) {
    for (std::int32_t to = 0; to < group.devices; ++to) {
      const LinkKind* link = direct_link(group, from, to);
      matrix_ports_.push_back(link == nullptr
                                  ? kNoPort
                                  : add_port(fmt::format("{0}:{1}>{0}:{2}", server.name, from, to),
                                             link->link.bandwidth));
    }
  }
}

void Topology::add_nic_ports(const Server& server) {
  const ServerGroup& group = description_.servers[to_position(server.group)];
  first_nic_.push_back(static_cast<std::int32_t>(nic_ports_.size() / 2));
  for (std::size_t nic = 0; nic < group.nics.size(); ++nic) {
    Bandwidth bandwidth = group.nics[nic].link.bandwidth;
    if (description_.network) bandwidth = std::min(bandwidth, description_.network->bandwidth);
    nic_ports_.push_back(add_port(fmt::format("{} nic{} out", server.name, nic), bandwidth));
    nic_ports_.push_back(add_port(fmt::format("{} nic{} in", server.name, nic), bandwidth));
  }
}

void Topology::add_root_ports(const Server& server) {
  const ServerGroup& group = description_.servers[to_position(server.group)];
  first_root_.push_back(static_cast<std::int32_t>(root_ports_.size() / 2));
  for (std::size_t root = 0; root < group.pcie_roots.size(); ++root) {
    const Bandwidth bandwidth = group.pcie_roots[root].link.bandwidth;
    root_ports_.push_back(add_port(fmt::format("{} root{} out", server.name, root), bandwidth));
    root_ports_.push_back(add_port(fmt::format("{} root{} in", server.name, root), bandwidth));
  }
}

/// Returns the given bandwidth of the uplink or, without one, that which follows from its
/// oversubscription. `members_together` is what all members can send, in bytes per second.
Bandwidth Topology::uplink_bandwidth(const UplinkGroup& group, Wide members_together) const {
  if (group.bandwidth) return *group.bandwidth;
  const Wide width = members_together * kOne.billionths / group.oversubscription.billionths;
  return {static_cast<std::int64_t>(std::clamp<Wide>(width, 1, kMaxCount))};
}

/// Adds the uplinks of racks and pods, which are numbered across all groups. What a rack's servers
/// can send together is the sum over their NICs.
void Topology::add_uplinks() {
  const auto add = [&](const char* kind, const UplinkGroup& group, Wide members_together,
                       std::vector<Enclosure>& enclosures) {
    const Bandwidth bandwidth = uplink_bandwidth(group, members_together);
    const std::string name = kind + std::to_string(enclosures.size());
    enclosures.push_back({.out = add_port(name + " out", bandwidth),
                          .in = add_port(name + " in", bandwidth),
                          .latency = group.latency,
                          .members = group.members});
  };
  ServerIndex server{0};
  for (const UplinkGroup& group : description_.racks) {
    for (std::int32_t rack = 0; rack < group.count; ++rack) {
      Wide together = 0;
      for (std::int32_t member = 0; member < group.members; ++member, server = server.next()) {
        server_rack_.push_back(static_cast<std::int32_t>(racks_.size()));
        together += nics_together(server).bytes_per_second;
      }
      add("rack", group, together, racks_);
    }
  }
  std::size_t rack = 0;
  for (const UplinkGroup& group : description_.pods) {
    for (std::int32_t pod = 0; pod < group.count; ++pod) {
      Wide together = 0;
      for (std::int32_t member = 0; member < group.members; ++member, ++rack) {
        racks_[rack].inside = static_cast<std::int32_t>(pods_.size());
        together += ports_[racks_[rack].out.position()].bandwidth.bytes_per_second;
      }
      add("pod", group, together, pods_);
    }
  }
}

Bandwidth Topology::rack_bandwidth(std::int32_t rack) const {
  return ports_[racks_[to_position(rack)].out.position()].bandwidth;
}

Bandwidth Topology::pod_bandwidth(std::int32_t pod) const {
  return ports_[pods_[to_position(pod)].out.position()].bandwidth;
}

void Topology::make_fill_orders() {
  std::vector<std::vector<std::size_t>> by_group;
  for (const ServerGroup& group : description_.servers) by_group.push_back(fill_numbers(group));
  for (const Server& server : servers_) {
    std::vector<DeviceIndex> order;
    for (const std::size_t number : by_group[to_position(server.group)]) {
      order.push_back({server.first_device.value + static_cast<std::int32_t>(number)});
    }
    fill_orders_.push_back(std::move(order));
  }
}

const DeviceKind& Topology::kind_of(DeviceIndex index) const {
  return description_.devices[to_position(device(index).kind)];
}

const ServerGroup& Topology::group_of(ServerIndex index) const {
  return description_.servers[to_position(server(index).group)];
}

Bytes Topology::memory_limit(DeviceIndex index) const {
  return kind_of(index).memory - kind_of(index).reserved;
}

GroupMember Topology::group_member(DeviceIndex index, std::int64_t i) const {
  const Device& of_group = device(index);
  const Server& own = server(of_group.server);
  const std::int64_t servers = description_.servers_of_group;
  const std::int64_t in_server = description_.group_size / servers;
  std::int64_t number = of_group.server.value;
  for (std::int32_t group = 0; group < own.group; ++group) {
    number -= description_.servers[to_position(group)].count;
  }
  return {fmt::format("{}{}", description_.servers[to_position(own.group)].name,
                      number * servers + i / in_server),
          of_group.number * in_server + i % in_server};
}

std::optional<DeviceIndex> Topology::find_device(const std::string& name) const {
  const auto found = device_by_name_.find(name);
  if (found == device_by_name_.end()) return std::nullopt;
  return found->second;
}

PortIndex Topology::matrix_port(DeviceIndex from_index, DeviceIndex to_index) const {
  const Device& from = device(from_index);
  const Device& to = device(to_index);
  const std::int32_t first = first_matrix_port_[from.server.position()];
  if (first < 0) return kNoPort;
  const std::int32_t devices = servers_[from.server.position()].device_count;
  return matrix_ports_[to_position(first + from.number * devices + to.number)];
}

void Topology::pass(Route& route, PortIndex port, Duration latency) const {
  route.ports.push_back(port);
  route.latency += latency;
  route.bandwidth = std::min(route.bandwidth, ports_[port.position()].bandwidth);
}

Route Topology::way_between_roots(ServerIndex server, std::int32_t from, std::int32_t to) const {
  Route way;
  if (from == to) return way;
  const std::vector<PcieRoot>& roots = group_of(server).pcie_roots;
  const auto port = [&](std::int32_t root) {
    return 2 * to_position(first_root_[server.position()] + root);
  };
  pass(way, root_ports_[port(from)], roots[to_position(from)].link.latency);
  pass(way, root_ports_[port(to) + 1], roots[to_position(to)].link.latency);
  return way;
}

Route Topology::way_to_nic(DeviceIndex from) const {
  const Device& sender = device(from);
  const GroupRoots& roots = group_roots_[to_position(server(sender.server).group)];
  if (roots.of_device.empty()) return {};
  return way_between_roots(sender.server, roots.of_device[to_position(sender.number)],
                           roots.of_nic[to_position(nic_of(from))]);
}

Route Topology::way_from_nic(DeviceIndex to) const {
  const Device& receiver = device(to);
  const GroupRoots& roots = group_roots_[to_position(server(receiver.server).group)];
  if (roots.of_device.empty()) return {};
  return way_between_roots(receiver.server, roots.of_nic[to_position(nic_of(to))],
                           roots.of_device[to_position(receiver.number)]);
}

Route Topology::way_between(ServerIndex from, ServerIndex to) const {
  check(from != to, "a way from a server to itself was asked for");
  Route way;
  way.latency = description_.network->latency;
  if (server_rack_.empty()) return way;
  const std::int32_t here = server_rack_[from.position()];
  const std::int32_t there = server_rack_[to.position()];
  if (here == there) return way;
  const Enclosure& left = racks_[to_position(here)];
  const Enclosure& entered = racks_[to_position(there)];
  pass(way, left.out, left.latency);
  if (left.inside != entered.inside) {
    pass(way, pods_[to_position(left.inside)].out, pods_[to_position(left.inside)].latency);
    pass(way, pods_[to_position(entered.inside)].in, pods_[to_position(entered.inside)].latency);
  }
  pass(way, entered.in, entered.latency);
  return way;
}

bool Topology::have_same_uplinks(ServerIndex a, ServerIndex b) const {
  if (server_rack_.empty()) return true;
  const std::int32_t rack_of_a = server_rack_[a.position()];
  const std::int32_t rack_of_b = server_rack_[b.position()];
  if (rack_of_a == rack_of_b) return true;
  const Enclosure& one = racks_[to_position(rack_of_a)];
  const Enclosure& other = racks_[to_position(rack_of_b)];
  return one.members == 1 && other.members == 1 && one.inside == other.inside &&
         one.latency == other.latency &&
         ports_[one.out.position()].bandwidth == ports_[other.out.position()].bandwidth;
}

std::int32_t Topology::offset_from_alike(DeviceIndex first, DeviceIndex last) const {
  const Server& front = server(device(first).server);
  if (!server_rack_.empty() || server(device(last).server).group != front.group) return 0;
  return front.first_device.value - server(first_server(front.group)).first_device.value;
}

/// Returns the route between two devices of one server.
Route Topology::way_inside(const Device& from, const Device& to) const {
  const ServerGroup& group = group_of(from.server);
  const std::int32_t first = servers_[from.server.position()].first_device.value;
  const DeviceIndex sender{first + from.number};
  const DeviceIndex receiver{first + to.number};
  Route way;
  if (const PortIndex direct = matrix_port(sender, receiver); direct != kNoPort) {
    pass(way, direct, direct_link(group, from.number, to.number)->link.latency);
    return way;
  }
  const bool is_host_path = has_matrix(group);
  const Link& link = is_host_path ? *group.links.host_path : group.links.port;
  pass(way, device_out(sender), link.latency);
  const std::vector<std::int32_t>& roots =
      group_roots_[to_position(server(from.server).group)].of_device;
  if (is_host_path && !roots.empty()) {
    append(way, way_between_roots(from.server, roots[to_position(from.number)],
                                  roots[to_position(to.number)]));
  }
  pass(way, device_in(receiver), {});
  return way;
}

Route Topology::route(DeviceIndex from, DeviceIndex to) const {
  check(from != to, "a route from a device to itself was asked for");
  const Device& sender = device(from);
  const Device& receiver = device(to);
  if (sender.server == receiver.server) return way_inside(sender, receiver);
  Route way = way_to_nic(from);
  pass(way, nic_out(sender.server, nic_of(from)), nic_link(sender.server, nic_of(from)).latency);
  append(way, way_between(sender.server, receiver.server));
  pass(way, nic_in(receiver.server, nic_of(to)), nic_link(receiver.server, nic_of(to)).latency);
  append(way, way_from_nic(to));
  return way;
}

std::int32_t Topology::nic_of(DeviceIndex index) const {
  const std::int32_t nic = device_nic_[index.position()];
  check(nic >= 0, "the NIC of a server without one was asked for");
  return nic;
}

Link Topology::nic_link(ServerIndex server, std::int32_t nic) const {
  return {ports_[nic_out(server, nic).position()].bandwidth,
          group_of(server).nics[to_position(nic)].link.latency};
}

Bandwidth Topology::nics_together(ServerIndex server) const {
  std::vector<std::int32_t> all(group_of(server).nics.size());
  std::iota(all.begin(), all.end(), 0);
  return nics_together(server, all);
}

Bandwidth Topology::nics_together(ServerIndex server, std::span<const std::int32_t> nics) const {
  Bandwidth together;
  for (const std::int32_t nic : nics) together = together + nic_link(server, nic).bandwidth;
  return together;
}

PortIndex Topology::nic_out(ServerIndex server, std::int32_t nic) const {
  return nic_ports_[2 * to_position(first_nic_[server.position()] + nic)];
}

PortIndex Topology::nic_in(ServerIndex server, std::int32_t nic) const {
  return nic_ports_[2 * to_position(first_nic_[server.position()] + nic) + 1];
}

PortIndex Topology::device_out(DeviceIndex index) const {
  const PortIndex port = device_ports_[2 * index.position()];
  check(port != kNoPort, "the port of a device without one was asked for");
  return port;
}

PortIndex Topology::device_in(DeviceIndex index) const {
  const PortIndex port = device_ports_[2 * index.position() + 1];
  check(port != kNoPort, "the port of a device without one was asked for");
  return port;
}

RingPacking Topology::pack_rings(const std::vector<DeviceIndex>& devices) const {
  check(devices.size() >= 2, "rings over fewer than two devices were asked for");
  const ServerIndex server = device(devices.front()).server;
  const std::int32_t group = servers_[server.position()].group;
  std::vector<std::int32_t> numbers;
  for (const DeviceIndex index : devices) {
    check(device(index).server == server, "rings over several servers were asked for");
    numbers.push_back(device(index).number);
  }
  RingPacking packing;
  {
    const std::lock_guard lock(ring_memory_->mutex);
    auto found = ring_memory_->packings.find({group, numbers});
    if (found == ring_memory_->packings.end()) {
      RingPacking anew = pack_rings_anew(group, numbers);
      found = ring_memory_->packings.emplace(std::pair{group, numbers}, std::move(anew)).first;
    }
    packing = found->second;
  }
  const std::int32_t shift =
      first_port_[server.position()] - first_port_[first_server(group).position()];
  for (auto& [port, taken] : packing.ports) port.value += shift;
  return packing;
}

RingPacking Topology::pack_rings_anew(std::int32_t group,
                                      const std::vector<std::int32_t>& numbers) const {
  const ServerGroup& servers = description_.servers[to_position(group)];
  check(has_matrix(servers), "rings over lanes of a server without a link matrix were asked for");
  LaneMesh mesh{numbers.size(), {}};
  for (const std::int32_t from : numbers) {
    for (const std::int32_t to : numbers) {
      const LinkKind* link = direct_link(servers, from, to);
      mesh.lanes.push_back(link == nullptr ? Lanes{} : lanes_of(*link));
    }
  }
  RingPacking packing;
  std::map<PortIndex, Bandwidth> taken;
  const DeviceIndex first = servers_[first_server(group).position()].first_device;
  for (const Ring& ring : pack_lane_rings(mesh)) {
    packing.bandwidth = packing.bandwidth + ring.bandwidth;
    for (std::size_t i = 0; i < ring.nodes.size(); ++i) {
      const std::int32_t from = numbers[ring.nodes[i]];
      const std::int32_t to = numbers[ring.nodes[(i + 1) % ring.nodes.size()]];
      Bandwidth& port = taken[matrix_port({first.value + from}, {first.value + to})];
      port = port + ring.bandwidth;
      packing.latency = std::max(packing.latency, direct_link(servers, from, to)->link.latency);
    }
  }
  packing.ports.assign(taken.begin(), taken.end());
  return packing;
}

ServerIndex Topology::first_server(std::int32_t group) const {
  ServerIndex first{0};
  for (std::int32_t before = 0; before < group; ++before) {
    first.value += description_.servers[to_position(before)].count;
  }
  return first;
}

const std::vector<DeviceIndex>& Topology::fill_order(ServerIndex server) const {
  return fill_orders_[server.position()];
}

}  // namespace dapple
