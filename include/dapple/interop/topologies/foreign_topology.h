// Topologies from the files of other tools. A file says how the devices of a server are wired
// (nvidia-smi, NCCL, hwloc), how servers hang together (Slurm), what a whole network is
// (ASTRA-sim), or what a collective measured (nccl-tests); several of them make one topology.
//
// Bandwidths are per direction and effective: what a program gets. Where a file has only a kind of
// link, its figure is NCCL's own (NVIDIA/nccl src/graph/topo.h), latencies are those of NCCL's ring
// with the Simple protocol (src/graph/tuning.cc), and the memory of a device that is known by name
// is its maker's. What neither a file nor such a table says is asked for; nothing is guessed.
//
// Departures from NCCL: a server has one level of PCIe roots, its sockets; PCIe switches below them
// are not told apart. NVLinks to a switch count as one port of their sum.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/topology/description.h"

namespace dapple::interop {

enum class TopologyFormat { NvidiaSmi, NcclXml, HwlocXml, NcclTests, Slurm, AstraSim };

/// As --format takes it: "nvidia-smi", "nccl-xml", "hwloc-xml", "nccl-tests", "slurm", "astra-sim".
std::string_view name_of(TopologyFormat format);
std::vector<TopologyFormat> all_topology_formats();

/// What the text looks like; nothing if it looks like none of them. O(length of the text).
std::optional<TopologyFormat> detect_topology_format(std::string_view text);

/// What files do not say, or what is to be used in place of what they say.
struct ForeignTopologyOptions {
  std::string name = "imported";
  std::optional<std::string> device;      // a known kind, or any name with `memory`
  std::optional<Bytes> memory;            // of a device
  Bytes reserved{std::int64_t{1} << 30};  // of it, for driver and framework
  std::optional<std::int64_t> servers;    // alike; 1 unless files tell
  std::optional<Bandwidth> nvlink;        // of one link, per direction
  std::optional<Bandwidth> pcie;          // of a device
  std::optional<Bandwidth> socket;        // between the sockets of a server
  std::optional<Bandwidth> nic;           // of one
  std::optional<std::int64_t> nics;       // of a server, where the file lists none
  std::optional<Bandwidth> network;       // of a port of the switch between servers
  std::optional<Bandwidth> rack_uplink;   // or:
  std::optional<Factor> rack_oversubscription;
  std::optional<Bandwidth> pod_uplink;
  std::optional<Factor> pod_oversubscription;
  std::optional<std::string> nodes;  // those of Slurm's hosts that count: "gpu[001-008]"
};

struct ForeignFile {
  std::string text;
  std::string name;  // what errors call it
  TopologyFormat format = TopologyFormat::NvidiaSmi;
};

struct ImportedTopology {
  TopologyDescription description;  // Topology accepts it
  std::vector<std::string> warnings;
};

/// Files that describe servers: of one kind, `servers` of them, or one file (or host) per server.
/// With them, or alone where it has the server's devices, results of nccl-tests, whose largest bus
/// bandwidth replaces that of the links that it went over: a device's ports if it stayed in one
/// server, else the NICs; an all-reduce's times by message size become a measured bus bandwidth of
/// as many devices. With them, one Slurm tree: leaf switches are racks, their switches pods.
/// ASTRA-sim's network stands alone. Throws Error(BadInput) with the faults of a file, or
/// Error(Usage) naming every option that is missing. O(length) and devices^2 of a server.
ImportedTopology import_topology(const std::vector<ForeignFile>& files,
                                 const ForeignTopologyOptions& options);

}  // namespace dapple::interop
