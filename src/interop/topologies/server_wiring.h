// The wiring of one server as a file describes it, and its conversion to a group of servers with
// the figures that the file leaves out.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/interop/topologies/foreign_topology.h"
#include "dapple/topology/description.h"

namespace dapple::interop {

/// The PCIe components between two devices, or a device and a NIC, in nvidia-smi's terms and by
/// increasing distance.
enum class PcieDistance {
  // At most one bridge.
  Pix,
  // Several bridges.
  Pxb,
  // A host bridge.
  Phb,
  // Several host bridges of one NUMA node.
  Node,
  // The interconnect of the sockets.
  Sys,
  // Not stated, as between devices with NVLinks in nvidia-smi's table.
  Unknown,
};

struct WiredNic {
  std::string name;
  std::optional<Bandwidth> bandwidth;
};

struct ServerWiring {
  // The name of the file in messages.
  std::string file;
  // The source that the topology names, such as "nvidia-smi topo -m".
  std::string source;
  std::int32_t devices = 0;
  // The kind of the devices, if the file states it.
  std::optional<std::string> device;
  // The prefix of the names of kinds of links, as in "NV2".
  std::string lane_name = "NV";
  // The number of direct links between any two devices.
  Eigen::MatrixXi lanes;
  // The number of links of each device to switches; empty if there are none.
  std::vector<std::int32_t> switch_lanes;
  // The bandwidth of one link, if the file states it.
  std::optional<Bandwidth> lane;
  // The PCIe bandwidth of the slowest device, if the file states it.
  std::optional<Bandwidth> pcie;
  // The bandwidth between sockets, if the file states it, and its source.
  std::optional<Bandwidth> socket;
  std::string socket_source;
  std::vector<WiredNic> nics;
  // The distances between all ends, where the devices come first and the NICs after them.
  std::vector<std::vector<PcieDistance>> distances;
};

/// Missing options and warnings, collected over all files.
struct ImportNotes {
  // The options that must be given, or that are refused, each with a message.
  std::vector<Violation> missing;
  std::vector<std::string> warnings;
  // The options that provided a figure.
  std::set<std::string> used;

  /// Adds the warning unless it is already there.
  void warn(std::string warning);
  /// Adds one warning with all oddities of a file that do not affect the result. Does nothing if
  /// there are none.
  void warn_of_oddities(const std::string& file, const std::vector<std::string>& oddities);
  /// Adds a message about an option to `missing` unless there is one already.
  void want(const std::string& option, const std::string& message);

  /// Returns the option's figure, and marks the option as used if it is given.
  template <class Figure>
  std::optional<Figure> take(const std::string& option, const std::optional<Figure>& figure) {
    if (figure) used.insert(option);
    return figure;
  }
  /// Warns if the option is given but its figure was never taken.
  void warn_if_unused(const std::string& option, bool is_given, std::string_view purpose);
};

/// Returns the distance between two ends, where the devices are numbered first and the NICs after
/// them.
PcieDistance& distance(ServerWiring& wiring, std::size_t a, std::size_t b);

/// Makes the wiring symmetric: both directions between two ends get the smaller number of links and
/// the greater distance; a distance that is unknown in one direction is taken from the other. Warns
/// of ends where the directions differ. O((devices + NICs)^2).
void make_symmetric(ServerWiring& wiring, ImportNotes& notes);

/// Returns the kind of device that --device, or else `name`, states, with figures from the table of
/// known devices and the options. Notes the options that are missing.
DeviceKind device_kind(const std::optional<std::string>& name, const std::string& file,
                       const ForeignTopologyOptions& options, ImportNotes& notes);

/// Returns one server, named "node", as a group whose count is not set. It has the NICs of the
/// wiring if there is a network or all their bandwidths are known. Each device uses the nearest
/// NIC, and of several the one with the fewest users. A NIC that no device uses is merged with an
/// equally near NIC that has a single user, and is left out if there is none. PCIe roots are the
/// sockets, if any traffic has to cross them, and absent otherwise. O((devices + NICs)^2).
ServerGroup server_group(const ServerWiring& wiring, const ForeignTopologyOptions& options,
                         bool has_network, ImportNotes& notes);

inline constexpr Duration kLinkLatency{3400};
inline constexpr Duration kPcieLatency{5700};
inline constexpr Duration kNicLatency{5000};
inline constexpr Duration kNetworkLatency{4000};
inline constexpr const char* kLatencySource =
    "latency: hardware latency of NCCL's ring with the Simple protocol (NVIDIA/nccl "
    "src/graph/tuning.cc)";

/// Returns NCCL's bandwidth of a PCIe link, lanes x speed / 80, or nothing if `transfers`, such as
/// "16.0 GT/s PCIe" or "16 GT/s", is not a speed of PCIe.
std::optional<Bandwidth> pcie_bandwidth(std::string_view transfers, std::int32_t width);

/// Returns the bandwidth in decimal GB/s with at most three decimal places, such as "370.8 GB/s".
std::string gigabytes(Bandwidth bandwidth);

}  // namespace dapple::interop
