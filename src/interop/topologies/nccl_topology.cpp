#include "interop/topologies/nccl_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <pugixml.hpp>
#include <set>
#include <utility>

#include "interop/text/foreign_text.h"
#include "interop/text/xml_text.h"
#include "interop/topologies/device_table.h"

namespace dapple::interop {
namespace {

constexpr std::size_t kMostDevices = 256;  // per host; the same limit applies to NICs
constexpr int kDeepest = 32;               // PCI bridges in each other
constexpr std::int32_t kMostLinks = 64;    // from one device to another or to one switch
// NCCL's defaults for a speed that it cannot read and for a missing width.
constexpr std::string_view kDefaultSpeed = "8 GT/s";
constexpr std::int32_t kDefaultWidth = 16;
constexpr std::int64_t kDefaultNetSpeed = 10'000;  // Mbit/s

struct DirectLink {
  std::int64_t line = 0;
  std::string target;
  std::string target_class;
  std::int32_t count = 0;
};

/// A device or a NIC, with its CPU and its path on PCIe.
struct End {
  std::int64_t line = 0;
  std::size_t cpu = 0;
  // The bus ids of the PCI functions from the root complex down to this one.
  std::vector<std::string> chain;
  // The bandwidth of the slowest link of the chain.
  std::optional<Bandwidth> pcie;
  // The bandwidth of the last link of the chain.
  std::optional<Bandwidth> port;
  std::string bus_id;

  // The following members describe a device.
  std::int32_t number = 0;
  // The compute capability, 70 for 7.0; 0 if the device has none.
  int sm = 0;
  // AMD's number of the architecture; 0 if the device has none.
  int gcn = 0;
  // The PCI device id; -1 if unknown.
  int pci_device = -1;
  std::vector<DirectLink> links;

  // The following members describe a NIC.
  std::string name;
  std::int64_t speed = 0;  // Mbit/s
};

struct Host {
  std::string hash;
  std::vector<End> devices;
  std::vector<End> nics;
  // The names of the network interfaces that are not below a PCI device.
  std::vector<std::string> virtual_nics;
  std::optional<Bandwidth> socket;
  std::string socket_source;
  bool has_xgmi = false;
};

/// A family of CPUs and the bandwidth between their sockets.
struct CpuModel {
  std::string_view words;
  Bandwidth socket;
};
/// Returns the family of a CPU by NCCL's table (src/graph/topo.cc, ncclTopoGetInterCpuBw), or
/// nothing if it is unknown.
std::optional<CpuModel> cpu_model(std::string_view arch, std::string_view vendor,
                                  std::int32_t model) {
  if (arch == "arm64") return CpuModel{"ARM", {6'000'000'000}};
  if (arch == "ppc64") return CpuModel{"POWER9", {32'000'000'000}};
  if (vendor == "AuthenticAMD") return CpuModel{"AMD", {16'000'000'000}};
  if (vendor != "GenuineIntel") return std::nullopt;
  if (model >= 0xCF) return CpuModel{"Intel Emerald Rapids", {40'000'000'000}};
  if (model >= 0x8F) return CpuModel{"Intel Sapphire Rapids", {22'000'000'000}};
  if (model >= 0x55) return CpuModel{"Intel Skylake", {10'000'000'000}};
  return CpuModel{"Intel before Skylake", {6'000'000'000}};
}

/// Returns the bandwidth of one NVLink by compute capability, or of one xGMI link by AMD's number
/// of the architecture, from the tables of NCCL and RCCL; nothing if the device is unknown.
std::optional<Bandwidth> lane_of(const End& device) {
  if (device.gcn >= 940) return Bandwidth{48'000'000'000};
  if (device.gcn >= 910) return Bandwidth{36'000'000'000};
  if (device.gcn > 0) return Bandwidth{24'000'000'000};
  if (device.sm >= 100) return Bandwidth{40'100'000'000};
  if (device.sm >= 90) return Bandwidth{20'600'000'000};
  if (device.sm == 86) return Bandwidth{12'000'000'000};
  if (device.sm >= 70) return Bandwidth{20'000'000'000};
  if (device.sm >= 60) return Bandwidth{18'000'000'000};
  return std::nullopt;
}

/// Returns a text such as "0x20b0" as a number, or -1 if it is not a hexadecimal number.
int hexadecimal(std::string_view text) {
  if (!begins_with(text, "0x") || text.size() < 3 || text.size() > 8) return -1;
  int number = 0;
  for (const char c : text.substr(2)) {
    const std::size_t digit = std::string_view("0123456789abcdefABCDEF").find(c);
    if (digit == std::string_view::npos) return -1;
    number = number * 16 + static_cast<int>(digit < 16 ? digit : digit - 6);
  }
  return number;
}

bool is_device_class(std::string_view pci_class) {
  return begins_with(pci_class, "0x03") || begins_with(pci_class, "0x12");
}

class SystemReader {
 public:
  SystemReader(const ForeignFile& file, ImportNotes& notes) : file_(file), notes_(notes) {}
  std::vector<ServerWiring> run();

 private:
  void fail(const pugi::xml_node& node, std::string message);
  std::optional<std::int32_t> count_of(const pugi::xml_node& node, const char* name,
                                       std::int32_t least, std::int32_t most);
  void read_cpu(const pugi::xml_node& cpu);
  void read_children(const pugi::xml_node& node, const End& above, int depth);
  void read_pci(const pugi::xml_node& pci, End above, int depth);
  void read_gpu(const pugi::xml_node& gpu, End device);
  void read_net(const pugi::xml_node& net, End nic);
  Bandwidth pci_link(const pugi::xml_node& pci);
  ServerWiring wiring_of(Host& host);
  void add_links(const Host& host, ServerWiring& wiring);
  void check_host(const Host& host);
  void warn_of_oddities();

  const ForeignFile& file_;
  ImportNotes& notes_;
  std::vector<LineFault> faults_;
  std::vector<Host> hosts_;
  Host* host_ = nullptr;
  std::size_t cpus_ = 0;
  std::size_t skeleton_devices_ = 0;
};

void SystemReader::fail(const pugi::xml_node& node, std::string message) {
  faults_.push_back({line_of(node, file_.text), std::move(message)});
}

std::optional<std::int32_t> SystemReader::count_of(const pugi::xml_node& node, const char* name,
                                                   std::int32_t least, std::int32_t most) {
  const char* text = node.attribute(name).value();
  const std::optional<std::int32_t> count = parse_count(text);
  if (count && *count >= least && *count <= most) return count;
  fail(node, fmt::format("expected {}= from {} to {} on <{}>, got '{}'", name, least, most,
                         node.name(), shown(text)));
  return std::nullopt;
}

Bandwidth SystemReader::pci_link(const pugi::xml_node& pci) {
  const std::string_view speed = pci.attribute("link_speed").value();
  const std::int32_t width = pci.attribute("link_width").as_int(0);
  const std::int32_t used_width = width >= 1 && width <= 32 ? width : kDefaultWidth;
  std::optional<Bandwidth> link = pcie_bandwidth(speed, used_width);
  if (!link) {
    link = pcie_bandwidth(kDefaultSpeed, used_width);
    notes_.warn(
        fmt::format("{}: a PCI device states no link speed ('{}'): {} on {} lanes are "
                    "taken, as NCCL does",
                    file_.name, shown(speed), kDefaultSpeed, used_width));
  }
  return *link;
}

void SystemReader::read_gpu(const pugi::xml_node& gpu, End device) {
  device.line = line_of(gpu, file_.text);
  device.number = count_of(gpu, "dev", 0, 100'000).value_or(0);
  device.sm = gpu.attribute("sm").as_int(0);
  device.gcn = gpu.attribute("gcn").as_int(0);
  // Some dumps have "gfx90a" in place of the number 910.
  if (std::string_view(gpu.attribute("gcn").value()) == "gfx90a") device.gcn = 910;
  for (const pugi::xml_node& link : gpu.children()) {
    const std::string_view kind = link.name();
    if (kind != "nvlink" && kind != "xgmi") continue;
    if (kind == "xgmi") host_->has_xgmi = true;
    const std::optional<std::int32_t> count = count_of(link, "count", 1, kMostLinks);
    device.links.push_back({line_of(link, file_.text), link.attribute("target").value(),
                            link.attribute("tclass").value(), count.value_or(1)});
  }
  host_->devices.push_back(std::move(device));
}

void SystemReader::read_net(const pugi::xml_node& net, End nic) {
  nic.line = line_of(net, file_.text);
  nic.name = net.attribute("name").value();
  if (!nic.port) {
    // NCCL lists all network interfaces of the system, including Docker's bridges, veths and
    // loopback.
    host_->virtual_nics.push_back(shown(nic.name));
    return;
  }
  const std::string_view text = net.attribute("speed").value();
  const bool negative = begins_with(text, "-");
  const std::optional<std::int32_t> speed = parse_count(text.substr(negative ? 1 : 0));
  if (!speed || *speed > 100'000'000) {
    fail(net, fmt::format("expected speed= in Mbit/s on <net>, got '{}'", shown(text)));
    return;
  }
  nic.speed = negative ? 0 : *speed;
  if (nic.speed <= 0) {
    notes_.warn(fmt::format("{}: {} states no speed ({}): {} Mbit/s are taken, as NCCL does",
                            file_.name, shown(nic.name), shown(text), kDefaultNetSpeed));
    nic.speed = kDefaultNetSpeed;
  }
  host_->nics.push_back(std::move(nic));
}

void SystemReader::read_pci(const pugi::xml_node& pci, End above, int depth) {
  const std::string bus_id = pci.attribute("busid").value();
  if (bus_id.empty()) fail(pci, "expected busid= on <pci>, got none");
  const Bandwidth link = pci_link(pci);
  if (above.pcie && !above.chain.empty() && *above.pcie < link) {
    notes_.warn(
        fmt::format("{}: a PCIe switch has {} up and {} down; what leaves it gets the former",
                    file_.name, gigabytes(*above.pcie), gigabytes(link)));
  }
  above.pcie = above.pcie ? std::min(*above.pcie, link) : link;
  above.port = link;
  above.chain.push_back(bus_id);
  above.bus_id = bus_id;
  above.pci_device = hexadecimal(pci.attribute("device").value());
  if (is_device_class(pci.attribute("class").value()) && !pci.child("gpu")) ++skeleton_devices_;
  read_children(pci, above, depth + 1);
}

void SystemReader::read_children(const pugi::xml_node& node, const End& above, int depth) {
  if (depth > kDeepest) {
    fail(node, fmt::format("expected at most {} PCI devices above each other, got more", kDeepest));
    return;
  }
  for (const pugi::xml_node& child : node.children()) {
    const std::string_view name = child.name();
    if (name == "pci") {
      read_pci(child, above, depth);
    } else if (name == "gpu") {
      read_gpu(child, above);
    } else if (name == "nic") {
      for (const pugi::xml_node& net : child.children("net")) read_net(net, above);
    }
  }
}

void SystemReader::read_cpu(const pugi::xml_node& cpu) {
  const std::string hash = cpu.attribute("host_hash").value();
  const auto found = std::find_if(hosts_.begin(), hosts_.end(),
                                  [&](const Host& host) { return host.hash == hash; });
  if (found == hosts_.end()) {
    host_ = &hosts_.emplace_back();
    host_->hash = hash;
  } else {
    host_ = &*found;
  }
  const std::optional<CpuModel> model =
      cpu_model(cpu.attribute("arch").value(), cpu.attribute("vendor").value(),
                cpu.attribute("modelid").as_int(0));
  if (model) {
    host_->socket = model->socket;
    host_->socket_source = fmt::format(
        "all that crosses the sockets: NCCL's figure for {} (NVIDIA/nccl src/graph/topo.h); its "
        "latency is part of the host path's",
        model->words);
  }
  End end;
  end.cpu = cpus_++;
  read_children(cpu, end, 0);
}

/// Checks that the bus ids of devices are unique, as the targets of links would be ambiguous
/// otherwise, and that there are not too many devices and NICs.
void SystemReader::check_host(const Host& host) {
  if (host.devices.size() > kMostDevices || host.nics.size() > kMostDevices) {
    faults_.push_back({0, fmt::format("expected at most {} devices and as many NICs of a host, got "
                                      "{} and {}",
                                      kMostDevices, host.devices.size(), host.nics.size())});
    return;
  }
  std::set<std::string> bus_ids;
  for (const End& device : host.devices) {
    if (!bus_ids.insert(device.bus_id).second) {
      faults_.push_back({device.line, fmt::format("expected each device once, got another <gpu> at "
                                                  "'{}'",
                                                  shown(device.bus_id))});
    }
  }
}

PcieDistance between(const End& a, const End& b) {
  if (a.cpu != b.cpu) return PcieDistance::Sys;
  std::size_t common = 0;
  while (common < std::min(a.chain.size(), b.chain.size()) && a.chain[common] == b.chain[common]) {
    ++common;
  }
  if (common == 0) return PcieDistance::Phb;
  return std::max(a.chain.size(), b.chain.size()) - common <= 1 ? PcieDistance::Pix
                                                                : PcieDistance::Pxb;
}

void SystemReader::add_links(const Host& host, ServerWiring& wiring) {
  std::vector<std::int32_t> to_switches(host.devices.size(), 0);
  for (std::size_t from = 0; from < host.devices.size(); ++from) {
    for (const DirectLink& link : host.devices[from].links) {
      const auto to = std::find_if(host.devices.begin(), host.devices.end(),
                                   [&](const End& end) { return end.bus_id == link.target; });
      const auto number = static_cast<std::size_t>(to - host.devices.begin());
      if (number == from) {
        notes_.warn(
            fmt::format("{}: line {}: a link from device {} to itself, which cannot be: it "
                        "is left out, and the device has PCIe in its place",
                        file_.name, link.line, from));
      } else if (to != host.devices.end()) {
        wiring.lanes(static_cast<Eigen::Index>(from), static_cast<Eigen::Index>(number)) +=
            link.count;
      } else if (link.target_class == "0x068000") {
        to_switches[from] += link.count;
      } else {
        notes_.warn(
            fmt::format("{}: line {}: a link from device {} to '{}', which is no device of "
                        "the file: it is left out",
                        file_.name, link.line, from, shown(link.target)));
      }
    }
  }
  const auto [least, most] = std::minmax_element(to_switches.begin(), to_switches.end());
  if (*most == 0) return;
  if (*least != *most) {
    notes_.warn(fmt::format("{}: devices have {} to {} links to switches; the fewest count for all",
                            file_.name, *least, *most));
  }
  if (*least > 0) wiring.switch_lanes = to_switches;
}

ServerWiring SystemReader::wiring_of(Host& host) {
  std::stable_sort(host.devices.begin(), host.devices.end(),
                   [](const End& a, const End& b) { return a.number < b.number; });
  ServerWiring wiring;
  wiring.file = file_.name;
  wiring.source = "NCCL topology XML";
  wiring.devices = static_cast<std::int32_t>(host.devices.size());
  wiring.lanes = Eigen::MatrixXi::Zero(wiring.devices, wiring.devices);
  wiring.lane = lane_of(host.devices.front());
  if (host.has_xgmi) wiring.lane_name = "XGMI";
  wiring.socket = host.socket;
  wiring.socket_source = host.socket_source;
  if (const KnownDevice* known = find_device_kind_of_pci(host.devices.front().pci_device)) {
    wiring.device = known->name;
  }
  std::vector<const End*> ends;
  for (const End& device : host.devices) {
    ends.push_back(&device);
    if (device.pcie) wiring.pcie = std::min(wiring.pcie.value_or(*device.pcie), *device.pcie);
    if (device.pci_device != host.devices.front().pci_device) {
      notes_.warn(
          fmt::format("{}: line {}: a device of another kind than the first; it is taken "
                      "for the same",
                      file_.name, device.line));
    }
  }
  for (const End& nic : host.nics) {
    ends.push_back(&nic);
    Bandwidth bandwidth{nic.speed * 125'000};
    if (*nic.port < bandwidth) {
      notes_.warn(fmt::format("{}: a NIC of {} has only {} of PCIe, which counts", file_.name,
                              gigabytes(bandwidth), gigabytes(*nic.port)));
      bandwidth = *nic.port;
    }
    wiring.nics.push_back({nic.name, bandwidth});
  }
  wiring.distances.assign(ends.size(), std::vector<PcieDistance>(ends.size()));
  for (std::size_t a = 0; a < ends.size(); ++a) {
    for (std::size_t b = 0; b < ends.size(); ++b) {
      distance(wiring, a, b) = a == b ? PcieDistance::Pix : between(*ends[a], *ends[b]);
    }
  }
  add_links(host, wiring);
  make_symmetric(wiring, notes_);
  return wiring;
}

void SystemReader::warn_of_oddities() {
  std::vector<std::string> oddities;
  const auto note = [&](bool is_so, const char* words) {
    if (is_so) oddities.emplace_back(words);
  };
  const auto is_linked = [](const Host& host) {
    return host.devices.size() == 1 ||
           std::any_of(host.devices.begin(), host.devices.end(),
                       [](const End& device) { return !device.links.empty(); });
  };
  note(begins_with(file_.text, "<!--"), "a comment before it");
  note(std::any_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.has_xgmi; }),
       "AMD's XGMI in place of NVLinks");
  note(!std::all_of(hosts_.begin(), hosts_.end(), is_linked), "devices with PCIe alone");
  notes_.warn_of_oddities(file_.name, oddities);
  for (const Host& host : hosts_) {
    if (host.virtual_nics.empty()) continue;
    notes_.warn(fmt::format(
        "{}: {} stand{} below no PCI device, as bridges and virtual interfaces do, and count{} for "
        "nothing: {}",
        file_.name, fmt::join(host.virtual_nics, ", "), host.virtual_nics.size() == 1 ? "s" : "",
        host.virtual_nics.size() == 1 ? "s" : "",
        host.nics.empty() ? "no NIC is left (--nics and --nic-bandwidth say what there is)"
                          : fmt::format("{} NIC{} left", host.nics.size(),
                                        host.nics.size() == 1 ? " is" : "s are")));
  }
}

std::vector<ServerWiring> SystemReader::run() {
  pugi::xml_document document;
  parse_xml(document, file_.text, file_.name);
  const pugi::xml_node system = document.child("system");
  if (!system) throw_faults({{0, "expected <system> at the top, got none"}}, file_.name);
  for (const pugi::xml_node& cpu : system.children("cpu")) read_cpu(cpu);
  if (hosts_.empty()) fail(system, "expected a <cpu> in <system>, got none");
  for (const Host& host : hosts_) {
    if (host.devices.empty() && skeleton_devices_ > 0) {
      fail(system,
           fmt::format("expected <gpu> elements with their links, got {} PCI devices alone, "
                       "as in the static file of a cloud image; a run with "
                       "NCCL_TOPO_DUMP_FILE writes all of it",
                       skeleton_devices_));
    } else if (host.devices.empty()) {
      fail(system, "expected a <gpu> in each host, got none");
    }
    check_host(host);
  }
  throw_faults(std::move(faults_), file_.name);
  warn_of_oddities();
  std::vector<ServerWiring> wirings;
  for (Host& host : hosts_) wirings.push_back(wiring_of(host));
  return wirings;
}

}  // namespace

bool is_nccl_topology(std::string_view text) {
  return text.find("<system") != std::string_view::npos;
}

std::vector<ServerWiring> read_nccl_topology(const ForeignFile& file, ImportNotes& notes) {
  return SystemReader(file, notes).run();
}

}  // namespace dapple::interop
