// A topology: an expanded description, in which every device and every port is numbered and any two
// devices are connected by a route.
//
// A port is one direction of one end of a link: for example the outgoing side of a device's link to
// its server's switch, the incoming side of a NIC or of a rack's uplink, or one direction of a link
// between two devices. Two transfers share the ports that their routes have in common.
#pragma once

#include <boost/container/static_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/topology/description.h"

namespace dapple {

struct Device {
  std::string name;  // "node0:3", or "node0:6-7" for a group of two
  ServerIndex server;
  /// The number within its server.
  std::int32_t number = 0;
  /// The position in TopologyDescription::devices.
  std::int32_t kind = 0;
};

struct Server {
  std::string name;  // "node0"
  std::int32_t group = 0;
  DeviceIndex first_device;
  std::int32_t device_count = 0;
};

struct Port {
  /// For example "node0:3 out", "node1 nic0 in", "node0:0>node0:3" or "rack0 out".
  std::string name;
  Bandwidth bandwidth;
};

/// A route, or a segment of one: the ports that it passes, in order, and its total latency.
struct Route {
  /// The most ports of a route: two PCIe roots, a NIC, an uplink of a rack and one of a pod, at
  /// either end.
  static constexpr std::size_t kMostPorts = 10;

  /// Distinct; every port that can be a bottleneck. They are kept in place, as searches make
  /// millions of routes.
  boost::container::static_vector<PortIndex, kMostPorts> ports;
  Duration latency;
  /// The bandwidth of the narrowest port.
  Bandwidth bandwidth{kMaxCount};
};

/// Rings over one server's devices that share no directed lane.
struct RingPacking {
  /// The total bandwidth of all rings; zero if there is none.
  Bandwidth bandwidth;
  /// The latency of the slowest hop used.
  Duration latency;
  /// The bandwidth that the rings use of each port.
  std::vector<std::pair<PortIndex, Bandwidth>> ports;
};

/// A device by the name of its server and its number there.
struct GroupMember {
  std::string server;
  std::int64_t number = 0;
};

class Topology {
 public:
  /// Expands a description. Throws Error(BadInput), naming `source_name`, with all violations, such
  /// as a NIC that lists a device that does not exist or devices that cannot reach each other.
  explicit Topology(TopologyDescription description, const std::string& source_name = "topology");

  const TopologyDescription& description() const { return description_; }
  std::int32_t device_count() const { return static_cast<std::int32_t>(devices_.size()); }
  const Device& device(DeviceIndex index) const { return devices_[index.position()]; }
  const DeviceKind& kind_of(DeviceIndex index) const;
  std::int32_t server_count() const { return static_cast<std::int32_t>(servers_.size()); }
  const Server& server(ServerIndex index) const { return servers_[index.position()]; }
  const ServerGroup& group_of(ServerIndex index) const;
  const std::vector<Port>& ports() const { return ports_; }

  /// Returns the memory that a plan may use on a device: its memory less what is reserved.
  Bytes memory_limit(DeviceIndex index) const;

  /// Returns one of the devices for which a device stands: the `i`-th of its group, or itself.
  /// O(kinds of servers). Requires: 0 <= i < group_size.
  GroupMember group_member(DeviceIndex index, std::int64_t i) const;

  /// Returns the device of that name ("node0:3"), or nothing. O(log devices).
  std::optional<DeviceIndex> find_device(const std::string& name) const;

  /// Returns the route from one device to another, which never passes through a third device.
  /// Between servers it consists of way_to_nic(), the NIC's port, way_between(), the other NIC's
  /// port and way_from_nic(). O(1). Requires: from != to.
  Route route(DeviceIndex from, DeviceIndex to) const;

  /// Return the route from a device to its NIC and from the NIC to the device: through the ports of
  /// two PCIe roots, or through none. O(1). Requires: the server has a NIC.
  Route way_to_nic(DeviceIndex from) const;
  Route way_from_nic(DeviceIndex to) const;
  /// Returns the route from the NICs of one server to those of another: the network's latency, and
  /// the uplinks of the racks and pods that contain one of the servers but not the other. O(1).
  /// Requires: from != to.
  Route way_between(ServerIndex from, ServerIndex to) const;

  /// Return the bandwidth of the uplink of a rack and of a pod. O(1). Requires: there are so many.
  Bandwidth rack_bandwidth(std::int32_t rack) const;
  Bandwidth pod_bandwidth(std::int32_t pod) const;

  /// Whether two servers of one kind are interchangeable as far as uplinks are concerned: there are
  /// no racks, or the servers are in the same rack, or each is alone in a rack and the two racks
  /// are in the same pod and have equal uplinks. O(1).
  bool have_same_uplinks(ServerIndex a, ServerIndex b) const;

  /// Returns the first of the interchangeable devices with consecutive numbers that a device is one
  /// of: devices of one server with a switch, or with a link matrix without direct links, that
  /// share one NIC or have one each of the same link, reached over the same ports; or servers of a
  /// single device with the same uplinks. Nothing but their numbers tells such devices apart. O(1).
  DeviceIndex first_interchangeable(DeviceIndex index) const {
    return first_interchangeable_[index.position()];
  }

  /// Returns how many devices the servers have that stand in front of those of `first` to `last`
  /// and are of the same kind. Devices in this range that are renumbered by so much keep all that
  /// is known of them but their numbers: kinds, memory, and the links of routes between them. 0 if
  /// their servers are of several kinds or there are racks. O(1).
  std::int32_t offset_from_alike(DeviceIndex first, DeviceIndex last) const;

  /// Returns the number, within the server, of the NIC that a device uses. Requires: the server has
  /// a NIC.
  std::int32_t nic_of(DeviceIndex index) const;
  /// Returns the link of one NIC, whose bandwidth is limited by the network's port. Requires: the
  /// server has a NIC of that number.
  Link nic_link(ServerIndex server, std::int32_t nic) const;
  /// Return what all NICs of a server, or some of them, can send, or receive, together; 0 without a
  /// NIC. O(NICs). Requires: the server has NICs of these numbers.
  Bandwidth nics_together(ServerIndex server) const;
  Bandwidth nics_together(ServerIndex server, std::span<const std::int32_t> nics) const;
  /// Return the ports of one NIC. Requires: the server has a NIC of that number.
  PortIndex nic_out(ServerIndex server, std::int32_t nic) const;
  PortIndex nic_in(ServerIndex server, std::int32_t nic) const;

  /// Return a device's own port on its server's switch or, with a link matrix, on the host path.
  /// Requires: the port exists, that is, the server has another device and, with a link matrix, a
  /// host path.
  PortIndex device_out(DeviceIndex index) const;
  PortIndex device_in(DeviceIndex index) const;

  /// Returns rings over `devices` that share no directed lane, with the largest total bandwidth
  /// found; a DGX-1 has six over all its devices. The search stops after a fixed number of steps,
  /// so on irregular meshes of more than eight devices the packing may not be the largest; it is
  /// always valid and deterministic. A packing is computed on first use and then cached.
  /// Thread-safe. Requires: two or more devices of one server with a link matrix, in ascending
  /// order.
  RingPacking pack_rings(const std::vector<DeviceIndex>& devices) const;

  /// Returns the devices of a server in the order in which plans fill them: with a link matrix, the
  /// path with the widest bottleneck hop, among these the one with the largest sum of widths, and
  /// among these the lexicographically first; otherwise by number. The width of a hop is that of
  /// the narrower of its two directions. Exact for up to ten devices; above, the best of the greedy
  /// paths that start at each of the first sixteen devices and always follow the widest hop.
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
  void find_interchangeable();
  void make_fill_orders();
  PortIndex add_port(std::string name, Bandwidth bandwidth);
  // Returns -1 for two devices without a direct link.
  PortIndex matrix_port(DeviceIndex from, DeviceIndex to) const;
  ServerIndex first_server(std::int32_t group) const;
  RingPacking pack_rings_anew(std::int32_t group, const std::vector<std::int32_t>& numbers) const;

  TopologyDescription description_;
  std::vector<Device> devices_;
  std::vector<Server> servers_;
  std::vector<Port> ports_;
  // Outgoing and incoming port of each device.
  std::vector<PortIndex> device_ports_;
  // Outgoing and incoming port of each NIC, server by server.
  std::vector<PortIndex> nic_ports_;
  // By server: the position of its first NIC among all NICs.
  std::vector<std::int32_t> first_nic_;
  // By ordered pair of devices of each server with a link matrix, server by server.
  std::vector<PortIndex> matrix_ports_;
  // By server: its first position in matrix_ports_, or -1 without a link matrix.
  std::vector<std::int32_t> first_matrix_port_;
  // By server: its first port. All servers of a group have the same ports in the same order.
  std::vector<std::int32_t> first_port_;
  // By device: the number of its NIC in the server, or -1 without NICs.
  std::vector<std::int32_t> device_nic_;
  // Outgoing and incoming upstream port of each PCIe root, server by server.
  std::vector<PortIndex> root_ports_;
  // By server: the position of its first root among all roots.
  std::vector<std::int32_t> first_root_;
  // The number, within the server, of the root of each device and of each NIC; empty without roots.
  struct GroupRoots {
    std::vector<std::int32_t> of_device;
    std::vector<std::int32_t> of_nic;
  };
  // By server group.
  std::vector<GroupRoots> group_roots_;
  // A rack or a pod.
  struct Enclosure {
    PortIndex out;
    PortIndex in;
    Duration latency;
    std::int32_t members = 1;
    // The pod that contains a rack, or -1.
    std::int32_t inside = -1;
  };
  std::vector<Enclosure> racks_;
  std::vector<Enclosure> pods_;
  // By server: the position of its rack; empty without racks.
  std::vector<std::int32_t> server_rack_;
  std::vector<DeviceIndex> first_interchangeable_;
  std::vector<std::vector<DeviceIndex>> fill_orders_;
  std::map<std::string, DeviceIndex> device_by_name_;
  struct RingMemory;
  // Shared by copies of a topology, which have the same links.
  std::shared_ptr<RingMemory> ring_memory_;
};

}  // namespace dapple
