// Devices, servers and links as a file describes them. topology/topology.h expands a description.
//
// Bandwidths are per direction and per endpoint.
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

/// Time to move `size` bytes across an idle link: latency + size / bandwidth, rounded up to a whole
/// nanosecond. Nothing is sent for a size of zero, so it costs nothing, not even the latency.
/// Requires: size.count >= 0 and link.bandwidth.bytes_per_second > 0.
Duration transfer_time(Bytes size, const Link& link);

struct DeviceKind {
  std::string name;
  std::string source;
  Bytes memory;
  Bytes reserved;                            // taken by driver and framework, not by the plan
  std::map<std::string, Factor> time_scale;  // profiled device -> factor on its times
  std::optional<Factor> price_per_hour;
};

/// A kind of direct link in a link matrix: `lanes` physical links bonded, `link` all of them.
struct LinkKind {
  std::string name;
  std::string source;
  Link link;
  std::int32_t lanes = 1;
};

/// Entry of a link matrix where two devices have no direct link (and on the diagonal).
inline constexpr int kNoLink = -1;

/// How the devices of one server reach each other.
struct ServerLinks {
  enum class Kind {
    Switch,  // any two at the bandwidth of a device's port
    Matrix,  // direct links of named kinds, and a host path for the pairs without one
  };
  Kind kind = Kind::Switch;
  std::string source;
  Link port;                      // Switch
  std::vector<LinkKind> kinds;    // Matrix
  Eigen::MatrixXi matrix;         // Matrix: entry (from, to) is a position in `kinds`, or kNoLink
  std::optional<Link> host_path;  // Matrix: per device and direction, for pairs without a link
  std::string host_path_source;
};

struct Nic {
  std::string source;
  Link link;
  std::vector<std::int32_t> devices;  // those that use it; empty: dealt evenly, in blocks
};

/// A root complex or PCIe switch of a server. What passes from below one to below another, to a
/// device on the host path or to a NIC, takes the upstream ports of both; what stays below one
/// takes neither.
struct PcieRoot {
  std::string source;
  Link link;                          // of its upstream port
  std::vector<std::int32_t> devices;  // below it
  std::vector<std::int32_t> nics;     // likewise
};

/// What all-reduces over `devices` of each of `servers` servers of a group were measured to reach,
/// whichever those are, as long as no uplink lies between them. It takes the place of what their
/// links would give.
struct BusBandwidthTable {
  /// Of a message of r devices that takes t: bandwidth = 2 (r - 1) / r * size / t, as nccl-tests
  /// have it (doc/PERFORMANCE.md).
  struct Point {
    Bytes size;
    Bandwidth bandwidth;

    friend bool operator==(const Point&, const Point&) = default;
  };
  std::string source;
  std::int32_t servers = 1;
  std::int32_t devices = 2;
  std::vector<Point> points;  // sizes rising, times not falling

  std::int64_t ranks() const { return std::int64_t{servers} * devices; }
};

/// How long a point's message took, rounded up. Requires: two ranks or more; a bandwidth above 0
/// and a time within 63 bits.
Duration reduction_time(const BusBandwidthTable& table, const BusBandwidthTable::Point& point);

struct ServerGroup {
  std::string name;
  std::int32_t count = 1;    // servers of this kind, named <name>0, <name>1, ...
  std::string device;        // name of a DeviceKind
  std::int32_t devices = 1;  // per server
  ServerLinks links;         // not looked at for one device
  std::vector<Nic> nics;
  std::vector<PcieRoot> pcie_roots;  // each device and NIC below one; empty: none is ever crowded
  std::vector<BusBandwidthTable> bus_bandwidth;  // at most one for each servers and devices
};

/// Racks or pods alike, with a way out each. They take servers, or racks, in their order.
struct UplinkGroup {
  std::string source;
  std::int32_t count = 1;
  std::int32_t members = 1;            // servers of each rack, racks of each pod
  std::optional<Bandwidth> bandwidth;  // of the uplink; without it:
  Factor oversubscription = kOne;      // what all members together can send / its bandwidth
  Duration latency;                    // of the uplink, per direction
};

struct TopologyDescription {
  std::string name;
  std::string source;
  std::vector<std::string> notes;
  std::vector<DeviceKind> devices;
  std::vector<ServerGroup> servers;
  std::optional<Link> network;  // a switch: bandwidth of one of its ports, and its latency
  std::string network_source;
  std::vector<UplinkGroup> racks;  // of all servers; none: one switch for all
  std::vector<UplinkGroup> pods;   // of all racks
  Factor overlap_slowdown = kOne;  // on computation, while gradients are reduced beside it
};

}  // namespace dapple
