// What a file says of the wiring of one server, and the group of servers that it makes with the
// figures that it leaves out.
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

/// What lies between two devices, or a device and a NIC, on PCIe; nvidia-smi's words.
enum class PcieDistance {
  Pix,      // one bridge at most
  Pxb,      // several bridges
  Phb,      // a host bridge
  Node,     // several of one NUMA node
  Sys,      // the interconnect of the sockets
  Unknown,  // not said, as between devices with NVLinks in nvidia-smi's table
};

struct WiredNic {
  std::string name;
  std::optional<Bandwidth> bandwidth;
};

struct ServerWiring {
  std::string file;    // for messages
  std::string source;  // for the topology: "nvidia-smi topo -m (box.txt)"
  std::int32_t devices = 0;
  std::optional<std::string> device;       // the kind, where the file tells
  std::string lane_name = "NV";            // of kinds of links: "NV2"
  Eigen::MatrixXi lanes;                   // direct links between two devices
  std::vector<std::int32_t> switch_lanes;  // of each device to switches; empty: none
  std::optional<Bandwidth> lane;           // of one link, where the file tells
  std::optional<Bandwidth> pcie;           // of the slowest device
  std::optional<Bandwidth> socket;
  std::string socket_source;
  std::vector<WiredNic> nics;
  std::vector<std::vector<PcieDistance>> distances;  // devices, then NICs, against the same
};

/// What is missing or odd, gathered over all files.
struct ImportNotes {
  std::vector<Violation> missing;  // options to give
  std::vector<std::string> warnings;
  std::set<std::string> used;  // options that gave a figure

  void warn(std::string warning);  // each once
  /// What is unusual about a file and changes nothing, in one warning; none for no oddities.
  void warn_of_oddities(const std::string& file, const std::vector<std::string>& oddities);
  /// Says once that an option must be given.
  void want(const std::string& option, const std::string& message);

  /// The option's figure, if it is given, noted as used.
  template <class Figure>
  std::optional<Figure> take(const std::string& option, const std::optional<Figure>& figure) {
    if (figure) used.insert(option);
    return figure;
  }
  /// Warns of an option that is given and was never taken.
  void warn_if_unused(const std::string& option, bool is_given, std::string_view purpose);
};

/// Between two ends: devices are numbered first, NICs after them.
PcieDistance& distance(ServerWiring& wiring, std::size_t a, std::size_t b);

/// Gives both directions between two ends the fewer links and the greater distance; what one side
/// does not say, the other does. Warns where they differ. O((devices + NICs)^2).
void make_symmetric(ServerWiring& wiring, ImportNotes& notes);

/// The kind of device of that name: from the table of known ones and the options.
DeviceKind device_kind(const std::optional<std::string>& name, const std::string& file,
                       const ForeignTopologyOptions& options, ImportNotes& notes);

/// One server, named "node", without count. NICs only if `has_network`. Each device uses the
/// nearest NIC, of several the one with the fewest users; those that then have none stand beside
/// one of these, as one NIC of their sum, if that has a single user, and are left out otherwise.
/// PCIe roots are the sockets, only if something has to cross them. O((devices + NICs)^2).
ServerGroup server_group(const ServerWiring& wiring, const ForeignTopologyOptions& options,
                         bool has_network, ImportNotes& notes);

inline constexpr Duration kLinkLatency{3400};
inline constexpr Duration kPcieLatency{5700};
inline constexpr Duration kNicLatency{5000};
inline constexpr Duration kNetworkLatency{4000};
inline constexpr const char* kLatencySource =
    "latency: hardware latency of NCCL's ring with the Simple protocol (NVIDIA/nccl "
    "src/graph/tuning.cc)";

/// NCCL's bandwidth of a PCIe link: lanes x speed / 80. `transfers` is "16.0 GT/s PCIe" or "16
/// GT/s"; nothing if that is no speed of PCIe.
std::optional<Bandwidth> pcie_bandwidth(std::string_view transfers, std::int32_t width);

/// "370.8 GB/s", decimal, three places at most.
std::string gigabytes(Bandwidth bandwidth);

}  // namespace dapple::interop
