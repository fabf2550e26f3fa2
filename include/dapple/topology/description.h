// Devices, servers and links as a topology file describes them; topology/topology.h expands a
// description. Bandwidths are per direction and per endpoint.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple {

struct Link {
  Bandwidth bandwidth;
  Duration latency;

  friend bool operator==(const Link&, const Link&) = default;
};

/// Returns the time to move `size` bytes across an idle link: latency + size / bandwidth, rounded
/// up to a whole nanosecond. Nothing is sent for a size of zero, which takes no time, not even the
/// latency. Requires: size.count >= 0 and link.bandwidth.bytes_per_second > 0.
Duration transfer_time(Bytes size, const Link& link);

struct DeviceKind {
  std::string name;
  std::string source;
  Bytes memory;
  /// The memory taken by driver and framework, which plans cannot use.
  Bytes reserved;
  /// For each kind of profiled device the factor that converts its times to this kind.
  std::map<std::string, Factor> time_scale;
  std::optional<Factor> price_per_hour;
};

/// A kind of direct link in a link matrix: `lanes` bonded physical links; `link` describes all of
/// them together.
struct LinkKind {
  std::string name;
  std::string source;
  Link link;
  std::int32_t lanes = 1;
};

/// The entry of a link matrix for two devices without a direct link (and on the diagonal).
inline constexpr int kNoLink = -1;

/// The interconnect of the devices of one server.
struct ServerLinks {
  enum class Kind {
    /// Any two devices communicate at the bandwidth of a device's port.
    Switch,
    /// Direct links of named kinds, and a host path for the pairs without one.
    Matrix,
  };
  Kind kind = Kind::Switch;
  std::string source;
  /// Switch: the port of each device.
  Link port;
  /// Matrix: the kinds of direct links.
  std::vector<LinkKind> kinds;
  /// Matrix: entry (from, to) is a position in `kinds`, or kNoLink.
  Eigen::MatrixXi matrix;
  /// Matrix: the path between pairs without a direct link, per device and direction.
  std::optional<Link> host_path;
  std::string host_path_source;
};

struct Nic {
  std::string source;
  Link link;
  /// The devices that use the NIC. If no NIC of the server names any, the devices are distributed
  /// evenly over the NICs, in contiguous blocks.
  std::vector<std::int32_t> devices;
};

/// A root complex or PCIe switch of a server. Traffic on the host path or to and from a NIC passes
/// the upstream ports of both roots if its two ends are below different roots, and of neither if
/// they are below the same one.
struct PcieRoot {
  std::string source;
  /// The upstream port.
  Link link;
  /// The numbers of the devices below this root.
  std::vector<std::int32_t> devices;
  /// The numbers of the NICs below this root.
  std::vector<std::int32_t> nics;
};

/// The measured bus bandwidth of all-reduces over any `devices` devices of each of any `servers`
/// servers of a group, provided that no uplink lies between the servers. It replaces the time
/// computed from their links.
struct BusBandwidthTable {
  /// One measurement: an all-reduce of `size` bytes over r devices that takes the time t has the
  /// bus bandwidth 2 (r - 1) / r * size / t, as defined by nccl-tests (doc/PERFORMANCE.md).
  struct Point {
    Bytes size;
    Bandwidth bandwidth;

    friend bool operator==(const Point&, const Point&) = default;
  };
  std::string source;
  std::int32_t servers = 1;
  std::int32_t devices = 2;
  /// By rising size, with times that do not fall.
  std::vector<Point> points;

  std::int64_t ranks() const { return std::int64_t{servers} * devices; }
};

/// Returns how long the all-reduce of a point took, rounded up. Requires: two ranks or more; a
/// bandwidth above 0 and a time within 63 bits.
Duration reduction_time(const BusBandwidthTable& table, const BusBandwidthTable::Point& point);

struct ServerGroup {
  std::string name;
  /// The number of servers of this kind, which are named <name>0, <name>1, ...
  std::int32_t count = 1;
  /// The name of a DeviceKind.
  std::string device;
  /// The number of devices per server.
  std::int32_t devices = 1;
  /// Ignored for servers with one device.
  ServerLinks links;
  std::vector<Nic> nics;
  /// Each device and each NIC is below one root; empty if PCIe roots are never a bottleneck.
  std::vector<PcieRoot> pcie_roots;
  /// At most one table for each pair of `servers` and `devices`.
  std::vector<BusBandwidthTable> bus_bandwidth;
};

/// Identical racks or pods, each with one uplink. The groups of racks are filled with the servers,
/// and those of pods with the racks, in their order.
struct UplinkGroup {
  std::string source;
  std::int32_t count = 1;
  /// The number of servers of each rack, or of racks of each pod.
  std::int32_t members = 1;
  /// The bandwidth of the uplink; if absent, it follows from `oversubscription`.
  std::optional<Bandwidth> bandwidth;
  /// The ratio of what all members together can send to the bandwidth of the uplink.
  Factor oversubscription = kOne;
  /// The latency of the uplink, per direction.
  Duration latency;
};

struct TopologyDescription {
  std::string name;
  std::string source;
  std::vector<std::string> notes;
  std::vector<DeviceKind> devices;
  std::vector<ServerGroup> servers;
  /// The network switch: the bandwidth of one of its ports, and its latency.
  std::optional<Link> network;
  std::string network_source;
  /// The racks of all servers; empty if one switch connects all servers.
  std::vector<UplinkGroup> racks;
  /// The pods of all racks; may be empty.
  std::vector<UplinkGroup> pods;
  /// The factor on computation times while gradients are reduced concurrently.
  Factor overlap_slowdown = kOne;
  /// The number of devices with consecutive numbers for which one device stands
  /// (cost/device_groups.h); 1 in a description as it is read.
  std::int64_t group_size = 1;
  /// The number of whole servers of such a group; 1 where groups are within servers.
  std::int64_t servers_of_group = 1;
  /// Whether the replicas of a stage shard its optimizer state, and so do the devices of a group
  /// that hold the same parameters: each needs only its shard of the sum of gradients, so that
  /// their reduction is a reduce-scatter (cost/all_reduce.h). False in a description as it is read,
  /// and where only the devices of each group do (GroupShape::shards_optimizer).
  bool shards_optimizer = false;
};

/// Returns the number of servers of all groups. O(groups).
std::int64_t server_count(const TopologyDescription& description);

}  // namespace dapple
