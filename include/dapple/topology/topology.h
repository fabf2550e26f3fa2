// A topology: a description expanded. Every device and every port is numbered, and there is a route
// between any two devices.
//
// A port is one direction of a link's end: the outgoing side of a device's link to its server's
// switch, the incoming side of a NIC or of a rack's uplink, or one direction of a link between two
// devices. Two transfers share what ports they have in common.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/topology/description.h"

namespace dapple {

struct Device {
  std::string name;  // "node0:3"
  ServerIndex server;
  std::int32_t number = 0;  // in its server
  std::int32_t kind = 0;    // position in TopologyDescription::devices
};

struct Server {
  std::string name;  // "node0"
  std::int32_t group = 0;
  DeviceIndex first_device;
  std::int32_t device_count = 0;
};

struct Port {
  std::string name;  // "node0:3 out", "node1 nic0 in", "node0:0>node0:3", "rack0 out"
  Bandwidth bandwidth;
};

/// A way, or a part of one: the ports it takes, in their order, and the sum of its parts'
/// latencies.
struct Route {
  std::vector<PortIndex> ports;  // distinct; all that can be a bottleneck
  Duration latency;
  Bandwidth bandwidth{kMaxCount};  // of the narrowest port
};

/// Rings over one server's devices that share no directed lane.
struct RingPacking {
  Bandwidth bandwidth;  // of all rings together; zero if there is none
  Duration latency;     // of the slowest hop used
  std::vector<std::pair<PortIndex, Bandwidth>> ports;  // what the rings take of each
};

class Topology {
 public:
  /// Expands a description. Throws Error(BadInput) naming `source_name` with all violations: a NIC
  /// that names a device that is not there, devices that cannot reach each other, and the like.
  explicit Topology(TopologyDescription description, const std::string& source_name = "topology");

  const TopologyDescription& description() const { return description_; }
  std::int32_t device_count() const { return static_cast<std::int32_t>(devices_.size()); }
  const Device& device(DeviceIndex index) const { return devices_[index.position()]; }
  const DeviceKind& kind_of(DeviceIndex index) const;
  std::int32_t server_count() const { return static_cast<std::int32_t>(servers_.size()); }
  const Server& server(ServerIndex index) const { return servers_[index.position()]; }
  const ServerGroup& group_of(ServerIndex index) const;
  const std::vector<Port>& ports() const { return ports_; }

  /// Memory that a plan may use on a device: its memory less what is reserved.
  Bytes memory_limit(DeviceIndex index) const;

  /// Device of that name ("node0:3"), or nothing. O(log devices).
  std::optional<DeviceIndex> find_device(const std::string& name) const;

  /// The way from one device to another. Never through a third device. Between servers it is
  /// way_to_nic(), the NIC's port, way_between(), the other NIC's port, way_from_nic(). O(1).
  /// Requires: from != to.
  Route route(DeviceIndex from, DeviceIndex to) const;

  /// From a device to its NIC, and back: through the ports of two PCIe roots, or none. O(1).
  /// Requires: the server has a NIC.
  Route way_to_nic(DeviceIndex from) const;
  Route way_from_nic(DeviceIndex to) const;
  /// From the NICs of one server to those of another: the network's latency, and the uplinks of the
  /// racks and pods that one of them is in and the other is not. O(1). Requires: from != to.
  Route way_between(ServerIndex from, ServerIndex to) const;

  /// Whether no uplink tells servers of one kind apart: they are in the same rack, or alone each,
  /// in racks of one pod with uplinks alike. O(1).
  bool have_same_uplinks(ServerIndex a, ServerIndex b) const;

  /// The NIC that a device uses: its number in the server. Requires: the server has one.
  std::int32_t nic_of(DeviceIndex index) const;
  /// Link and directions of one NIC. Requires: the server has a NIC of that number.
  Link nic_link(ServerIndex server, std::int32_t nic) const;  // narrowed by the network's port
  PortIndex nic_out(ServerIndex server, std::int32_t nic) const;
  PortIndex nic_in(ServerIndex server, std::int32_t nic) const;

  /// A device's own port on its server's switch (or host path, on a link matrix).
  /// Requires: there is one, so another device in the server and, on a link matrix, a host path.
  PortIndex device_out(DeviceIndex index) const;
  PortIndex device_in(DeviceIndex index) const;

  /// Rings over `devices` (of one link-matrix server, ascending, two or more) that share no
  /// directed lane, of the largest total bandwidth found; a DGX-1 has six over all its devices.
  /// The search stops after a fixed number of steps, so on irregular meshes of more than eight
  /// devices the packing may not be the largest; it is always a valid one, and deterministic.
  /// Found when first asked for and then remembered; safe to call from several threads.
  RingPacking pack_rings(const std::vector<DeviceIndex>& devices) const;

  /// Devices of a server in the order in which plans fill them: for a link matrix a path whose
  /// narrowest hop is widest, then of the largest sum, then lexicographically first; else by
  /// number. A hop is as wide as the narrower of its two directions. Exact for up to ten devices;
  /// above, the best of the paths that go on by the widest hop from each of the first sixteen
  /// devices.
  const std::vector<DeviceIndex>& fill_order(ServerIndex server) const;

 private:
  void expand();
  void add_ports();
  void add_device_ports(const Server& server);
  void add_matrix_ports(const Server& server);
  void add_nic_ports(const Server& server);
  void add_root_ports(const Server& server);
  void add_uplinks();
  Bandwidth uplink_bandwidth(const UplinkGroup& group, Wide members_together) const;
  void pass(Route& route, PortIndex port, Duration latency) const;
  Route way_between_roots(ServerIndex server, std::int32_t from, std::int32_t to) const;
  Route way_inside(const Device& from, const Device& to) const;
  void make_fill_orders();
  PortIndex add_port(std::string name, Bandwidth bandwidth);
  PortIndex matrix_port(DeviceIndex from, DeviceIndex to) const;  // -1 without a direct link
  ServerIndex first_server(std::int32_t group) const;
  RingPacking pack_rings_anew(std::int32_t group, const std::vector<std::int32_t>& numbers) const;

  TopologyDescription description_;
  std::vector<Device> devices_;
  std::vector<Server> servers_;
  std::vector<Port> ports_;
  std::vector<PortIndex> device_ports_;          // out, in per device
  std::vector<PortIndex> nic_ports_;             // out, in per NIC, server by server
  std::vector<std::int32_t> first_nic_;          // per server, position of its first NIC
  std::vector<PortIndex> matrix_ports_;          // per directed pair of a link-matrix server
  std::vector<std::int32_t> first_matrix_port_;  // per server, -1 without a matrix
  std::vector<std::int32_t> first_port_;         // per server; alike servers have alike ports
  std::vector<std::int32_t> device_nic_;         // per device, -1 without
  std::vector<PortIndex> root_ports_;            // out, in per PCIe root, server by server
  std::vector<std::int32_t> first_root_;         // per server, position of its first root
  struct GroupRoots {
    std::vector<std::int32_t> of_device;  // number of a device's root in its server
    std::vector<std::int32_t> of_nic;
  };
  std::vector<GroupRoots> group_roots_;  // per group, empty without roots
  /// A rack or a pod.
  struct Enclosure {
    PortIndex out;
    PortIndex in;
    Duration latency;
    std::int32_t members = 1;
    std::int32_t inside = -1;  // the pod of a rack, or -1
  };
  std::vector<Enclosure> racks_;
  std::vector<Enclosure> pods_;
  std::vector<std::int32_t> server_rack_;  // empty without racks
  std::vector<std::vector<DeviceIndex>> fill_orders_;
  std::map<std::string, DeviceIndex> device_by_name_;
  struct RingMemory;
  std::shared_ptr<RingMemory> ring_memory_;  // shared by copies: they have the same links
};

}  // namespace dapple
