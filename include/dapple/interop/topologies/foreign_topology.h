// Imports topologies from the files of other tools. A file describes how the devices of a server
// are wired (nvidia-smi, NCCL, hwloc), how servers are connected (Slurm), a whole network
// (ASTRA-sim), or the measurements of a collective (nccl-tests); several files may be combined into
// one topology.
//
// Bandwidths are per direction and effective, that is, as seen by a program. Where a file names
// only the kind of a link, its bandwidth is NCCL's figure (NVIDIA/nccl src/graph/topo.h); latencies
// are those of NCCL's ring with the Simple protocol (src/graph/tuning.cc), and the memory of a
// known device is that of its manufacturer's datasheet. Values that neither a file nor such a table
// provides must be given as options.
//
// Departures from NCCL: a server has a single level of PCIe roots, its sockets; PCIe switches below
// them are not modelled. The NVLinks of a device to switches form one port with the sum of their
// bandwidths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/interop/text/foreign_format.h"
#include "dapple/topology/description.h"

namespace dapple::interop {

enum class TopologyFormat { NvidiaSmi, NcclXml, HwlocXml, NcclTests, Slurm, AstraSim };

/// Returns the name of the format that --format takes, such as "nccl-xml".
std::string_view name_of(TopologyFormat format);
/// Returns the names of every format, in the order in which messages list them.
std::vector<ForeignFormat<TopologyFormat>> topology_formats();

/// Returns the format that the text appears to have, or nothing if it resembles none of them.
/// O(length of the text).
std::optional<TopologyFormat> detect_topology_format(std::string_view text);

/// Values that the files do not state, or that replace those they state.
struct ForeignTopologyOptions {
  std::string name = "imported";
  /// The kind of the devices: a known one, or any name together with `memory`.
  std::optional<std::string> device;
  /// The memory of a device.
  std::optional<Bytes> memory;
  /// The part of a device's memory that driver and framework take.
  Bytes reserved{std::int64_t{1} << 30};
  /// The number of identical servers; 1 if neither this nor the files say.
  std::optional<std::int64_t> servers;
  /// The bandwidth of a single NVLink, per direction.
  std::optional<Bandwidth> nvlink;
  /// The bandwidth of a device's PCIe port.
  std::optional<Bandwidth> pcie;
  /// The bandwidth between the sockets of a server.
  std::optional<Bandwidth> socket;
  /// The bandwidth of a single NIC.
  std::optional<Bandwidth> nic;
  /// The number of NICs of a server, if the file lists none.
  std::optional<std::int64_t> nics;
  /// The bandwidth of a port of the switch between servers.
  std::optional<Bandwidth> network;
  /// The bandwidth of a rack's uplink, as an alternative to `rack_oversubscription`.
  std::optional<Bandwidth> rack_uplink;
  /// The factor by which a rack's uplink is slower than its members together.
  std::optional<Factor> rack_oversubscription;
  /// The bandwidth of a pod's uplink, as an alternative to `pod_oversubscription`.
  std::optional<Bandwidth> pod_uplink;
  /// The factor by which a pod's uplink is slower than its members together.
  std::optional<Factor> pod_oversubscription;
  /// The hosts of a Slurm topology to include, such as "gpu[001-008]"; all if not given.
  std::optional<std::string> nodes;
};

struct ForeignFile {
  std::string text;
  /// The name of the file in errors.
  std::string name;
  TopologyFormat format = TopologyFormat::NvidiaSmi;
};

struct ImportedTopology {
  /// A description that Topology accepts.
  TopologyDescription description;
  std::vector<std::string> warnings;
};

/// Combines the files into one topology:
///
///   servers    files that describe the wiring of servers: a single one for `servers` identical
///              servers, or one file (or host of a file) per server
///   nccl-tests results of collectives, in addition to those files, or alone if they list the
///              devices of a single server; the largest bus bandwidth replaces the bandwidth of the
///              links that were used: those of a server if the collective ran within one, else the
///              NICs; the times of an all-reduce by message size become a measured bus bandwidth
///              for the same number of devices
///   slurm      at most one tree of switches, in addition to those files; leaf switches become
///              racks, and the switches above them pods
///   astra-sim  a whole network, which must be the only file
///
/// Throws Error(BadInput) with the faults of a file, or Error(Usage) naming every option that is
/// missing. O(length) and devices^2 of a server.
ImportedTopology import_topology(const std::vector<ForeignFile>& files,
                                 const ForeignTopologyOptions& options);

}  // namespace dapple::interop
