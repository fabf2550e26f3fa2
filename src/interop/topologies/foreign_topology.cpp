#include "dapple/interop/topologies/foreign_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "dapple/io/documents/documents.h"
#include "interop/text/foreign_text.h"
#include "interop/text/recognizers.h"
#include "interop/topologies/astra_network.h"
#include "interop/topologies/device_table.h"
#include "interop/topologies/hwloc_topology.h"
#include "interop/topologies/nccl_tests.h"
#include "interop/topologies/nccl_topology.h"
#include "interop/topologies/nvidia_smi.h"
#include "interop/topologies/server_wiring.h"
#include "interop/topologies/slurm_topology.h"

namespace dapple::interop {
namespace {

constexpr ForeignFormat<TopologyFormat> kTopologyFormats[] = {
    {TopologyFormat::NvidiaSmi, "nvidia-smi", "nvidia-smi", "nvidia-smi topo -m"},
    {TopologyFormat::NcclXml, "nccl-xml", "NCCL", "NCCL (topology XML)"},
    {TopologyFormat::HwlocXml, "hwloc-xml", "hwloc", "hwloc (XML)"},
    {TopologyFormat::NcclTests, "nccl-tests", "nccl-tests", "nccl-tests"},
    {TopologyFormat::Slurm, "slurm", "Slurm", "Slurm (topology.conf)"},
    {TopologyFormat::AstraSim, "astra-sim", "ASTRA-sim", "ASTRA-sim (network)"}};

// In the order in which they are asked: comments in one format may contain words of a later one.
constexpr Recognizer<TopologyFormat> kTopologyRecognizers[] = {
    {.format = TopologyFormat::NvidiaSmi, .text = is_nvidia_smi},
    {.format = TopologyFormat::HwlocXml, .text = is_hwloc_topology},
    {.format = TopologyFormat::NcclXml, .text = is_nccl_topology},
    {.format = TopologyFormat::AstraSim, .text = is_astra_network},
    {.format = TopologyFormat::NcclTests, .text = is_nccl_tests},
    {.format = TopologyFormat::Slurm, .text = is_slurm_topology}};

/// Returns the group as text without the name of the server and the sources of its NICs, which is
/// equal for identical servers.
std::string content_of(ServerGroup group) {
  group.name = "node";
  group.count = 1;
  for (Nic& nic : group.nics) nic.source.clear();
  TopologyDescription description;
  description.servers = {std::move(group)};
  return io::write_topology(description);
}

/// Scales the links of a link matrix such that the rings over all devices together reach the
/// bandwidth `measured`.
void scale_links(ServerGroup& group, Bandwidth measured, const std::string& source) {
  ServerGroup alone = group;
  alone.count = 1;
  alone.device = "device";
  TopologyDescription description;
  DeviceKind kind;
  kind.name = "device";
  kind.memory = Bytes{1};
  description.devices = {kind};
  description.servers = {std::move(alone)};
  const Topology topology(description);
  std::vector<DeviceIndex> devices;
  for (DeviceIndex device{0}; device.value < group.devices; device = device.next()) {
    devices.push_back(device);
  }
  const Bandwidth rings = topology.pack_rings(devices).bandwidth;
  if (rings.bytes_per_second == 0) return;
  for (LinkKind& links : group.links.kinds) {
    const Wide scaled = Wide{links.link.bandwidth.bytes_per_second} * measured.bytes_per_second;
    links.link.bandwidth = {
        std::max<std::int64_t>(1, static_cast<std::int64_t>(scaled / rings.bytes_per_second))};
    links.source = fmt::format("{}, over rings that had {}", source, gigabytes(rings));
  }
}

/// Returns "1 server", "2 servers" and the like.
std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// Returns how many servers the devices fill, at least one.
std::int32_t divide_servers(std::int32_t devices, std::int32_t per_server) {
  return std::max(1, devices / per_server);
}

/// Returns the bus bandwidth of an all-reduce, rounded up, so that it implies a time no longer than
/// the measured one.
Bandwidth bus_bandwidth(const BusBandwidthTable& table, Bytes size, Duration time) {
  return {divide_up(Wide{2} * (table.ranks() - 1) * size.count * kNanosecondsPerSecond,
                    Wide{table.ranks()} * time.ns)};
}

class Importer {
 public:
  Importer(const std::vector<ForeignFile>& files, const ForeignTopologyOptions& options)
      : files_(files), options_(options) {}
  ImportedTopology run();

 private:
  void read_files();
  void add_servers();
  void check_limits() const;
  void add_measured_server();
  void add_tree();
  void add_uplinks(const SlurmTree& tree);
  void add_network();
  void calibrate(const MeasuredCollective& measured);
  void calibrate_server(const MeasuredCollective& measured);
  void calibrate_nics(const MeasuredCollective& measured);
  void add_bus_bandwidth(const MeasuredCollective& measured, ServerGroup& group);
  void refuse_figures();
  void warn_of_unused();
  [[noreturn]] void refuse(const std::string& file, std::string message) const;

  const std::vector<ForeignFile>& files_;
  const ForeignTopologyOptions& options_;
  ImportNotes notes_;
  std::vector<ServerWiring> wirings_;
  std::vector<MeasuredCollective> measured_;
  std::optional<SlurmTree> tree_;
  std::string tree_file_;
  std::optional<TopologyDescription> whole_;
  TopologyDescription description_;
};

void Importer::refuse(const std::string& file, std::string message) const {
  throw Error(ErrorKind::BadInput, file, {{"", std::move(message)}});
}

void Importer::read_files() {
  const auto append = [&](std::vector<ServerWiring> wirings) {
    for (ServerWiring& wiring : wirings) wirings_.push_back(std::move(wiring));
  };
  for (const ForeignFile& file : files_) {
    switch (file.format) {
      case TopologyFormat::NvidiaSmi:
        append({read_nvidia_smi(file, notes_)});
        break;
      case TopologyFormat::NcclXml:
        append(read_nccl_topology(file, notes_));
        break;
      case TopologyFormat::HwlocXml:
        append({read_hwloc_topology(file, notes_)});
        break;
      case TopologyFormat::NcclTests:
        measured_.push_back(read_nccl_tests(file, notes_));
        break;
      case TopologyFormat::Slurm:
        if (tree_) refuse(file.name, "expected one Slurm topology, got another");
        tree_ = read_slurm_topology(file, options_.nodes, notes_);
        tree_file_ = file.name;
        break;
      case TopologyFormat::AstraSim:
        if (files_.size() > 1) {
          refuse(file.name, "expected an ASTRA-sim network alone, got other files with it");
        }
        whole_ = read_astra_network(file, notes_);
        break;
    }
    description_.source += fmt::format("{}{} ({})", description_.source.empty() ? "" : "; ",
                                       name_of(file.format), base_name(file.name));
  }
  if (options_.nodes && !tree_) notes_.want("--nodes", "expected only with a Slurm topology");
}

/// Refuses the options for figures that an ASTRA-sim network states itself, which is all but the
/// kind of the devices.
void Importer::refuse_figures() {
  const std::pair<const char*, bool> given[] = {
      {"--servers", options_.servers.has_value()},
      {"--nvlink-bandwidth", options_.nvlink.has_value()},
      {"--pcie-bandwidth", options_.pcie.has_value()},
      {"--socket-bandwidth", options_.socket.has_value()},
      {"--nic-bandwidth", options_.nic.has_value()},
      {"--nics", options_.nics.has_value()},
      {"--network-bandwidth", options_.network.has_value()},
      {"--rack-uplink", options_.rack_uplink || options_.rack_oversubscription},
      {"--pod-uplink", options_.pod_uplink || options_.pod_oversubscription}};
  for (const auto& [option, is_given] : given) {
    if (is_given) notes_.want(option, "expected not with an ASTRA-sim network, which says it");
  }
}

/// Makes a server from a result of nccl-tests alone: it has the listed devices, connected at the
/// bandwidth that they reached.
void Importer::add_measured_server() {
  const MeasuredCollective& measured = measured_.front();
  if (measured.hosts.size() != 1) {
    refuse(measured.file,
           measured.hosts.empty()
               ? "expected a list of its devices, or another file of how the devices of a "
                 "server are wired; it has neither"
               : fmt::format("expected another file of how the devices of a server are wired: "
                             "it measured {} servers, and says nothing of what is inside one",
                             measured.hosts.size()));
  }
  ServerWiring wiring;
  wiring.file = measured.file;
  wiring.source = "nccl-tests";
  wiring.devices = measured.ranks;
  const auto ends = static_cast<std::size_t>(measured.ranks);
  wiring.lanes = Eigen::MatrixXi::Zero(measured.ranks, measured.ranks);
  wiring.distances.assign(ends, std::vector<PcieDistance>(ends, PcieDistance::Node));
  wiring.pcie = measured.bus;
  if (const KnownDevice* known = find_device_kind_of_product(measured.product)) {
    wiring.device = known->name;
  }
  wirings_.push_back(std::move(wiring));
}

void Importer::add_servers() {
  if (wirings_.empty()) {
    if (measured_.empty()) {
      refuse(tree_file_,
             "expected another file of how the devices of a server are wired: it "
             "has the switches between servers alone");
    }
    add_measured_server();
  }
  const auto in_tree = [&] {
    std::int64_t hosts = 0;
    for (const SlurmRack& rack : tree_->racks)
      hosts += static_cast<std::int64_t>(rack.hosts.size());
    return hosts;
  };
  const std::int64_t alike = tree_ ? in_tree() : options_.servers.value_or(1);
  if (tree_ && options_.servers && *options_.servers != alike) {
    notes_.want("--servers", fmt::format("expected the {} hosts of {}, got {}; --nodes says which "
                                         "of them count",
                                         alike, tree_file_, *options_.servers));
  }
  if (wirings_.size() > 1 && alike > 1 && alike != static_cast<std::int64_t>(wirings_.size())) {
    notes_.want("--servers", fmt::format("expected one file for all servers or one for each, got "
                                         "{} for {}",
                                         wirings_.size(), alike));
  }
  const bool has_network = alike > 1 || wirings_.size() > 1;
  for (const ServerWiring& wiring : wirings_) {
    const DeviceKind kind = device_kind(wiring.device, wiring.file, options_, notes_);
    ServerGroup group = server_group(wiring, options_, has_network, notes_);
    group.device = kind.name;
    std::vector<DeviceKind>& kinds = description_.devices;
    const auto same_kind = [&](const DeviceKind& known) { return known.name == kind.name; };
    if (std::none_of(kinds.begin(), kinds.end(), same_kind)) kinds.push_back(kind);
    // Consecutive hosts that are identical form one group.
    if (!description_.servers.empty()) {
      ServerGroup& before = description_.servers.back();
      if (content_of(group) == content_of(before)) {
        ++before.count;
        continue;
      }
      group.name = fmt::format("node-{}-", description_.servers.size());
    }
    description_.servers.push_back(std::move(group));
  }
  std::sort(description_.devices.begin(), description_.devices.end(),
            [](const DeviceKind& a, const DeviceKind& b) { return a.name < b.name; });
  if (wirings_.size() == 1) {
    description_.servers.front().count = static_cast<std::int32_t>(alike);
  }
}

void Importer::add_uplinks(const SlurmTree& tree) {
  const auto tier = [&](std::vector<UplinkGroup>& groups, const std::vector<std::int32_t>& members,
                        const std::string& what, const std::optional<Bandwidth>& bandwidth,
                        const std::optional<Factor>& oversubscription) {
    notes_.take("--" + what + "-uplink", bandwidth);
    notes_.take("--" + what + "-uplink", oversubscription);
    if (!bandwidth && !oversubscription) {
      notes_.want("--" + what + "-uplink",
                  fmt::format("expected what each of {} {}s can send to the others, as \"200 "
                              "GB/s\", or a number N: 1/N of what its members can; {} says nothing "
                              "of it",
                              members.size(), what, tree_file_));
    }
    for (const std::int32_t count : members) {
      if (!groups.empty() && groups.back().members == count) {
        ++groups.back().count;
        continue;
      }
      groups.push_back({.source = fmt::format("Slurm ({}); bandwidth as asked for; latency: an "
                                              "allowance for the switch above",
                                              base_name(tree_file_)),
                        .count = 1,
                        .members = count,
                        .bandwidth = bandwidth,
                        .oversubscription = oversubscription.value_or(kOne),
                        .latency = {1000}});
    }
  };
  std::vector<std::int32_t> hosts;
  for (const SlurmRack& rack : tree.racks) {
    hosts.push_back(static_cast<std::int32_t>(rack.hosts.size()));
  }
  tier(description_.racks, hosts, "rack", options_.rack_uplink, options_.rack_oversubscription);
  if (tree.racks_of_pods.size() < 2) return;
  tier(description_.pods, tree.racks_of_pods, "pod", options_.pod_uplink,
       options_.pod_oversubscription);
}

void Importer::add_tree() {
  if (!tree_) {
    if (options_.rack_uplink || options_.rack_oversubscription) {
      notes_.want("--rack-uplink", "expected only with a Slurm topology");
    }
    if (options_.pod_uplink || options_.pod_oversubscription) {
      notes_.want("--pod-uplink", "expected only with a Slurm topology");
    }
    return;
  }
  std::int64_t number = 0;
  for (const SlurmRack& rack : tree_->racks) {
    const auto last = number + static_cast<std::int64_t>(rack.hosts.size()) - 1;
    description_.notes.push_back(fmt::format("servers {} to {} are {} to {}, on switch {}", number,
                                             last, shown(rack.hosts.front()),
                                             shown(rack.hosts.back()), shown(rack.name)));
    number = last + 1;
  }
  if (tree_->racks.size() > 1) add_uplinks(*tree_);
}

void Importer::add_network() {
  if (server_count(description_) < 2) {
    if (options_.network) {
      notes_.want("--network-bandwidth", "expected only with more than one server");
    }
    return;
  }
  Bandwidth widest;
  for (const ServerGroup& group : description_.servers) {
    for (const Nic& nic : group.nics) widest = std::max(widest, nic.link.bandwidth);
  }
  description_.network = Link{options_.network.value_or(widest), kNetworkLatency};
  description_.network_source = fmt::format(
      "{}; {}: network, 14 us, as 5 + 4 + 5",
      options_.network ? "as asked for" : "a port per NIC of a switch that is never crowded",
      kLatencySource);
  if (!options_.network) {
    notes_.warn(
        fmt::format("the network between the servers is taken to be as fast as their NICs "
                    "({}); --network-bandwidth says otherwise",
                    gigabytes(widest)));
  } else if (*options_.network > widest) {
    notes_.warn(
        fmt::format("the network has {} a port and the NICs only {}: the NICs count; was a "
                    "figure in Gbit/s taken for GB/s?",
                    gigabytes(*options_.network), gigabytes(widest)));
  }
}

/// Sets the bandwidth of the links of the first group of servers that have as many devices as were
/// measured to the measured bus bandwidth. Warns if there is none.
void Importer::calibrate_server(const MeasuredCollective& measured) {
  for (ServerGroup& group : description_.servers) {
    if (group.devices != measured.ranks) continue;
    ServerLinks& links = group.links;
    const std::string source = fmt::format("nccl-tests ({}): bus bandwidth of {} bytes",
                                           base_name(measured.file), measured.bus_size.count);
    const auto replace = [&](Bandwidth& bandwidth, std::string& said) {
      if (measured.bus > bandwidth) {
        notes_.warn(fmt::format("{}: {} measured is above the {} of the links; it stands",
                                measured.file, gigabytes(measured.bus), gigabytes(bandwidth)));
      }
      bandwidth = measured.bus;
      said = source;
    };
    if (links.kind == ServerLinks::Kind::Switch) {
      replace(links.port.bandwidth, links.source);
    } else if (!group.pcie_roots.empty() && links.kinds.empty()) {
      for (PcieRoot& root : group.pcie_roots) replace(root.link.bandwidth, root.source);
    } else if (links.kinds.empty()) {
      replace(links.host_path->bandwidth, links.host_path_source);
    } else {
      scale_links(group, measured.bus, source);
    }
    add_bus_bandwidth(measured, group);
    return;
  }
  notes_.warn(
      fmt::format("{}: it measured {} devices of one server, and no server has as many; it "
                  "is not used",
                  measured.file, measured.ranks));
}

/// Scales the NICs of each server such that they reach the measured bus bandwidth together, as they
/// share the traffic of the ring to the next server.
void Importer::calibrate_nics(const MeasuredCollective& measured) {
  for (ServerGroup& group : description_.servers) {
    if (group.nics.empty()) continue;
    add_bus_bandwidth(measured, group);
    Bandwidth all;
    for (const Nic& nic : group.nics) all = all + nic.link.bandwidth;
    if (measured.bus > all) {
      notes_.warn(
          fmt::format("{}: {} measured between servers is above what the NICs of one carry "
                      "({}), as with reductions inside switches; they stay as they are",
                      measured.file, gigabytes(measured.bus), gigabytes(all)));
      continue;
    }
    for (Nic& nic : group.nics) {
      const Wide part = Wide{nic.link.bandwidth.bytes_per_second} * measured.bus.bytes_per_second;
      nic.link.bandwidth = {static_cast<std::int64_t>(part / all.bytes_per_second)};
      nic.source +=
          fmt::format("; nccl-tests ({}): its part of the bus bandwidth", base_name(measured.file));
    }
  }
}

/// Adds the measured times by message size as a table of bus bandwidths, for the numbers of servers
/// and devices that were measured. Times longer than that of a larger message are left out as
/// noise.
void Importer::add_bus_bandwidth(const MeasuredCollective& measured, ServerGroup& group) {
  if (measured.times.empty()) return;
  BusBandwidthTable table;
  const auto hosts = static_cast<std::int32_t>(measured.hosts.size());
  table.servers = hosts > 0 ? hosts : divide_servers(measured.ranks, group.devices);
  table.devices = measured.ranks / table.servers;
  if (table.servers > group.count || table.devices > group.devices ||
      table.ranks() != measured.ranks) {
    notes_.warn(
        fmt::format("{}: its times by message size are left out: they are of {} devices, "
                    "which {} of {} do not make up",
                    measured.file, measured.ranks, counted(group.count, "server"),
                    counted(group.devices, "device")));
    return;
  }
  table.source = fmt::format("nccl-tests ({})", base_name(measured.file));
  Duration least{INT64_MAX};
  for (auto row = measured.times.rbegin(); row != measured.times.rend(); ++row) {
    const auto& [size, time] = *row;
    const BusBandwidthTable::Point point{size, bus_bandwidth(table, size, time)};
    const Duration taken = reduction_time(table, point);
    if (taken > least) continue;
    least = taken;
    table.points.push_back(point);
  }
  std::reverse(table.points.begin(), table.points.end());
  const std::size_t left_out = measured.times.size() - table.points.size();
  if (left_out > 0) {
    notes_.warn(fmt::format("{}: {} that took longer than a larger one {} left out", measured.file,
                            counted(static_cast<std::int64_t>(left_out), "message"),
                            left_out == 1 ? "is" : "are"));
  }
  group.bus_bandwidth.push_back(std::move(table));
}

void Importer::calibrate(const MeasuredCollective& measured) {
  const std::int32_t devices = description_.servers.front().devices;
  const auto hosts = static_cast<std::int32_t>(measured.hosts.size());
  if (measured.ranks < 2) {
    notes_.warn(fmt::format("{}: it does not say how many devices it measured; it is not used",
                            measured.file));
  } else if (hosts == 1 || (hosts == 0 && measured.ranks <= devices)) {
    calibrate_server(measured);
  } else {
    calibrate_nics(measured);
  }
}

/// Warns of options whose figures were not used, because there are no such links or the tier has a
/// single switch.
void Importer::warn_of_unused() {
  const std::tuple<const char*, bool, const char*> given[] = {
      {"--nvlink-bandwidth", options_.nvlink.has_value(), "that of a direct link"},
      {"--pcie-bandwidth", options_.pcie.has_value(), "that of devices that are linked by PCIe"},
      {"--socket-bandwidth", options_.socket.has_value(), "that of a way between sockets"},
      {"--nic-bandwidth", options_.nic.has_value(), "that of a NIC to another server"},
      {"--nics", options_.nics.has_value(), "that of servers with others to reach"},
      {"--rack-uplink", options_.rack_uplink || options_.rack_oversubscription,
       "that of a rack among others"},
      {"--pod-uplink", options_.pod_uplink || options_.pod_oversubscription,
       "that of a pod among others"}};
  for (const auto& [option, is_given, purpose] : given) {
    notes_.warn_if_unused(option, is_given, purpose);
  }
}

/// Checks that the topology can be written to a file and read back, which enforces the limits of
/// topology files. Throws Error(Usage) for --servers if that is given and there are too many
/// servers, and Error(BadInput) for other faults.
void Importer::check_limits() const {
  const std::string& file = files_.front().name;
  try {
    const Topology accepted(io::read_topology(io::write_topology(description_), file), file);
    check(accepted.device_count() > 0, "a topology without devices");
  } catch (const Error& error) {
    const Violation& first = error.violations().front();
    if (!options_.servers || first.place != "/servers") throw;
    throw Error(ErrorKind::Usage, "", {{"--servers", first.message}});
  }
}

ImportedTopology Importer::run() {
  read_files();
  if (whole_) {
    description_ = std::move(*whole_);
    refuse_figures();
    const DeviceKind kind = device_kind({}, files_.front().name, options_, notes_);
    description_.devices = {kind};
    description_.servers.front().device = kind.name;
  } else {
    add_servers();
    for (const MeasuredCollective& measured : measured_) calibrate(measured);
    add_tree();
    add_network();
    warn_of_unused();
  }
  description_.name = options_.name;
  if (!notes_.missing.empty()) throw Error(ErrorKind::Usage, "", std::move(notes_.missing));
  check_limits();
  return {std::move(description_), std::move(notes_.warnings)};
}

}  // namespace

std::vector<ForeignFormat<TopologyFormat>> topology_formats() {
  return {std::begin(kTopologyFormats), std::end(kTopologyFormats)};
}

std::string_view name_of(TopologyFormat format) {
  return std::find_if(
             std::begin(kTopologyFormats), std::end(kTopologyFormats),
             [&](const ForeignFormat<TopologyFormat>& known) { return known.format == format; })
      ->name;
}

std::optional<TopologyFormat> detect_topology_format(std::string_view text) {
  return recognized(kTopologyRecognizers, text);
}

ImportedTopology import_topology(const std::vector<ForeignFile>& files,
                                 const ForeignTopologyOptions& options) {
  check(!files.empty(), "a topology of no files");
  return Importer(files, options).run();
}

}  // namespace dapple::interop
