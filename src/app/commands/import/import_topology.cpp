#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/import/import_parts.h"
#include "app/request/file_kinds.h"
#include "app/request/inputs.h"
#include "dapple/interop/topologies/foreign_topology.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/units/quantity_text.h"
#include "dapple/report/table.h"

namespace dapple::app {
namespace {

std::optional<Bandwidth> bandwidth_of(const command_line::Options& options,
                                      const std::string& name) {
  const std::optional<std::string> text = options.text(name);
  if (!text) return std::nullopt;
  const std::optional<Bandwidth> bandwidth = io::parse_bandwidth(*text);
  if (!bandwidth) {
    throw command_line::usage_error(
        "--" + name, fmt::format("expected a bandwidth such as \"25 GB/s\" or \"200 Gbit/s\", got "
                                 "\"{}\"",
                                 printable(*text)));
  }
  return bandwidth;
}

/// Reads an uplink: a bandwidth, or a plain number, which is the oversubscription.
void read_uplink(const command_line::Options& options, const std::string& name,
                 std::optional<Bandwidth>& bandwidth, std::optional<Factor>& oversubscription) {
  if (const std::optional<std::string> text = options.text(name)) {
    oversubscription = command_line::parse_factor(*text);
    if (!oversubscription) bandwidth = bandwidth_of(options, name);
  }
}

interop::ForeignTopologyOptions topology_options_of(const command_line::Options& options) {
  constexpr std::int64_t kMost = 65'536;
  interop::ForeignTopologyOptions foreign;
  foreign.name = options.name("name").value_or(foreign.name);
  foreign.device = options.name("device");
  foreign.memory = options.size("memory");
  foreign.reserved = options.size("reserved").value_or(foreign.reserved);
  foreign.servers = options.positive_integer("servers", kMost);
  foreign.nvlink = bandwidth_of(options, "nvlink-bandwidth");
  foreign.pcie = bandwidth_of(options, "pcie-bandwidth");
  foreign.socket = bandwidth_of(options, "socket-bandwidth");
  foreign.nic = bandwidth_of(options, "nic-bandwidth");
  foreign.nics = options.positive_integer("nics", 64);
  foreign.network = bandwidth_of(options, "network-bandwidth");
  read_uplink(options, "rack-uplink", foreign.rack_uplink, foreign.rack_oversubscription);
  read_uplink(options, "pod-uplink", foreign.pod_uplink, foreign.pod_oversubscription);
  foreign.nodes = options.text("nodes");
  return foreign;
}

struct TopologyRequest {
  std::vector<std::string> paths;
  /// Empty if the files tell it.
  std::optional<interop::TopologyFormat> format;
  interop::ForeignTopologyOptions foreign;
  std::string output;
};

TopologyRequest topology_request(const command_line::Options& options) {
  if (options.positional().empty())
    throw command_line::usage_error("import topology", "expected one file or more, got none");
  TopologyRequest request{.paths = options.positional(),
                          .format = forced_format(options, interop::topology_formats()),
                          .foreign = topology_options_of(options),
                          .output = {}};
  request.output = options.text("output").value_or(
      command_line::default_output(request.foreign.name, ".topology.json"));
  return request;
}

struct UsedLink {
  std::string what;
  Bandwidth bandwidth;
  Duration latency;

  friend bool operator==(const UsedLink&, const UsedLink&) = default;
};

void add_server_links(const ServerGroup& group, std::vector<UsedLink>& links) {
  const auto add = [&](const std::string& what, const Link& link) {
    links.push_back({group.name + ": " + what, link.bandwidth, link.latency});
  };
  if (group.devices > 1 && group.links.kind == ServerLinks::Kind::Switch) {
    add("device to device, a port each", group.links.port);
  }
  for (const LinkKind& kind : group.links.kinds) add("direct link " + kind.name, kind.link);
  if (group.links.host_path) add("host path of a device", *group.links.host_path);
  for (const PcieRoot& root : group.pcie_roots) add("out of a socket", root.link);
  for (const Nic& nic : group.nics) add("NIC", nic.link);
}

/// Returns every kind of link once, in the order from the device outwards.
std::vector<UsedLink> used_links(const TopologyDescription& description) {
  std::vector<UsedLink> links;
  for (const ServerGroup& group : description.servers) add_server_links(group, links);
  if (description.network) {
    links.push_back({"network, a port of its switch", description.network->bandwidth,
                     description.network->latency});
  }
  const Topology topology(description);
  for (const auto& [groups, name] :
       {std::pair{&description.racks, "rack"}, std::pair{&description.pods, "pod"}}) {
    std::int32_t number = 0;
    for (const UplinkGroup& group : *groups) {
      const std::string port_name = fmt::format("{}{} out", name, number);
      number += group.count;
      for (const Port& port : topology.ports()) {
        if (port.name == port_name) {
          links.push_back({fmt::format("uplink of a {}", name), port.bandwidth, group.latency});
        }
      }
    }
  }
  std::vector<UsedLink> distinct;
  for (const UsedLink& link : links) {
    if (std::find(distinct.begin(), distinct.end(), link) == distinct.end()) {
      distinct.push_back(link);
    }
  }
  return distinct;
}

/// Returns a table of the smallest and the largest message of every measurement.
std::string measurements_text(const TopologyDescription& description,
                              const report::TextStyle& style) {
  report::Table table({{.header = "all-reduce, measured over", .least = 20},
                       {.header = "message", .align = report::Align::Right},
                       {.header = "bus GB/s", .align = report::Align::Right},
                       {.header = "time", .align = report::Align::Right}});
  bool is_empty = true;
  for (const ServerGroup& group : description.servers) {
    for (const BusBandwidthTable& measured : group.bus_bandwidth) {
      for (const BusBandwidthTable::Point* point :
           {&measured.points.front(), &measured.points.back()}) {
        is_empty = false;
        table.add_row({{.text = printable(fmt::format("{}: {} x {} devices", group.name,
                                                      measured.servers, measured.devices))},
                       {.text = report::show(point->size)},
                       {.text = report::show_rate(
                            static_cast<double>(point->bandwidth.bytes_per_second) / 1e9)},
                       {.text = report::show(reduction_time(measured, *point))}});
      }
    }
  }
  return is_empty ? "" : table.text(0, style) + '\n';
}

void write_summary(const interop::ImportedTopology& imported, std::ostream& words,
                   const report::TextStyle& style) {
  const Topology topology(imported.description);
  words << fmt::format("{}: {} server{}, {} device{}\n", printable(imported.description.name),
                       topology.server_count(), topology.server_count() == 1 ? "" : "s",
                       topology.device_count(), topology.device_count() == 1 ? "" : "s");
  for (const DeviceKind& kind : imported.description.devices) {
    words << fmt::format("{}: {} of memory, {} of it reserved\n", printable(kind.name),
                         report::show(kind.memory), report::show(kind.reserved));
  }
  report::Table table({{.header = "link, each direction", .least = 20},
                       {.header = "GB/s", .align = report::Align::Right},
                       {.header = "latency", .align = report::Align::Right}});
  for (const UsedLink& link : used_links(imported.description)) {
    table.add_row(
        {{.text = printable(link.what)},
         {.text = report::show_rate(static_cast<double>(link.bandwidth.bytes_per_second) / 1e9)},
         {.text = report::show(link.latency)}});
  }
  if (topology.device_count() > 1) words << '\n' << table.text(0, style) << '\n';
  words << measurements_text(imported.description, style);
}

/// Returns a warning with '#' for the words that distinguish it from others of its kind: names,
/// places and figures.
std::string kind_of(const std::string& warning) {
  std::string kind;
  std::istringstream words(warning);
  for (std::string word; words >> word;) {
    const bool is_particular = word.find_first_of("0123456789'\"") != std::string::npos;
    kind += is_particular ? " #" : ' ' + word;
  }
  return kind;
}

/// Prints the first warning of each kind and the number of similar ones; with --verbose all of
/// them.
void print_warnings(command_line::Console& console, const std::vector<std::string>& warnings) {
  std::map<std::string, std::size_t> counts;
  for (const std::string& warning : warnings) ++counts[kind_of(warning)];
  for (const std::string& warning : warnings) {
    std::size_t& count = counts[kind_of(warning)];
    if (count == 0) continue;
    const bool stands_for_others = count > 1 && !console.err_style.verbose;
    command_line::print_warning(
        console,
        stands_for_others ? fmt::format("{}; {} more like it (-v)", warning, count - 1) : warning);
    if (!console.err_style.verbose) count = 0;
  }
}

int run(const command_line::Options& options, command_line::Console& console) {
  const TopologyRequest request = topology_request(options);
  const std::string& output = request.output;
  check_outputs({{"--output", output}}, command_line::numbered_paths(request.paths));

  const interop::ImportedTopology imported = interop::import_topology(
      read_foreign<interop::ForeignFile>(request.paths, request.format,
                                         {.formats = interop::topology_formats(),
                                          .detect = interop::detect_topology_format,
                                          .what = "a file of"}),
      request.foreign);
  print_warnings(console, imported.warnings);
  const auto [stream, style] = console.words(output == "-");
  write_summary(imported, stream, style);
  command_line::write_result(console, output, io::write_topology(imported.description));
  if (output != "-") stream << "topology written to " << printable(output) << '\n';
  return command_line::kDone;
}

command_line::OptionSpec bandwidth_option(const std::string& name, const std::string& text,
                                          const std::string& default_value) {
  return {.name = name,
          .value = "B",
          .text = text,
          .default_value = default_value,
          .details = "B is per direction, as \"25 GB/s\", \"200 Gbit/s\" or \"200 Gbps\"."};
}

std::vector<command_line::OptionSpec> device_options() {
  return {{.name = "device",
           .value = "NAME",
           .text = "Call the kind of the devices NAME, such as H100-80GB."},
          {.name = "memory",
           .value = "SIZE",
           .text = "Give a device this memory.",
           .default_value = "that of a known kind"},
          {.name = "reserved",
           .value = "SIZE",
           .text = "Reserve SIZE of it for driver and framework.",
           .default_value = "1 GiB"},
          {.name = "servers",
           .value = "N",
           .text = "Make N servers that are alike.",
           .default_value = "1"},
          {.name = "nics", .value = "N", .text = "Give a server N NICs where the file lists none."},
          {.name = "nodes",
           .value = "HOSTS",
           .text = "Take these hosts of Slurm's, as gpu[01-08].",
           .default_value = "all"}};
}

std::vector<command_line::OptionSpec> link_options() {
  return {bandwidth_option("nvlink-bandwidth", "Set the bandwidth of an NVLink.", "NCCL's figure"),
          bandwidth_option("pcie-bandwidth", "Set that of a device's PCIe link.", "NCCL's figure"),
          bandwidth_option("socket-bandwidth", "Set that between sockets.",
                           "NCCL's, if the CPU is told"),
          bandwidth_option("nic-bandwidth", "Set that of a NIC.", "the file's"),
          bandwidth_option("network-bandwidth", "Set that of a switch port.", "a NIC's"),
          {.name = "rack-uplink",
           .value = "B|N",
           .text = "Set that of a rack's uplink, or its oversubscription N."},
          {.name = "pod-uplink",
           .value = "B|N",
           .text = "Set that of a pod's uplink, or its oversubscription N."}};
}

std::vector<command_line::OptionSection> imported_topology_options() {
  return {{"",
           {command_line::output_option("Write the topology.", "./NAME.topology.json"),
            format_option(interop::topology_formats()),
            {.name = "name",
             .value = "NAME",
             .text = "Call the topology NAME.",
             .default_value = "imported"}}},
          {"Devices", device_options()},
          {"Links, B being a bandwidth such as \"25 GB/s\" or \"200 Gbit/s\"", link_options()}};
}

}  // namespace

command_line::Command import_topology_command() {
  return {
      .description =
          {.name = "topology",
           .summary = "make a topology from other tools' files",
           .usage = {"dapple-plan import topology FILE... [-o FILE] [options]"},
           .about = "A FILE says how the devices of a server are wired: nvidia-smi topo -m, NCCL's "
                    "or hwloc's XML. With it go Slurm's topology.conf and results of nccl-tests; "
                    "ASTRA-sim's network goes alone.",
           .details = {"There is one file for all servers, or one for each. What is neither in the "
                       "files nor known nor given is asked for. \"nvidia-smi topo -m > topo.txt\" "
                       "makes a file."},
           .takes_files = true,
           .options = imported_topology_options(),
           .examples = {"dapple-plan import topology tests/golden/interop/box.smi.txt \\",
                        "  --device V100-16GB --servers 4 --nic-bandwidth \"100 Gbit/s\" \\",
                        "  --socket-bandwidth \"22 GB/s\""}},
      .run = run};
}

}  // namespace dapple::app
