#include "interop/topologies/server_wiring.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "interop/text/foreign_text.h"
#include "interop/topologies/device_table.h"

namespace dapple::interop {
namespace {

using Numbers = std::vector<std::int32_t>;

/// The NICs that devices use, and the sockets of devices and NICs.
struct Placement {
  // The NICs of each device. The first may be shared with other devices; the others are its own.
  std::vector<Numbers> nics;
  // The socket of each device, then that of each NIC.
  Numbers sockets;
};

std::string links_text(std::int32_t count) {
  return fmt::format("{} link{}", count, count == 1 ? "" : "s");
}

class GroupMaker {
 public:
  GroupMaker(const ServerWiring& wiring, const ForeignTopologyOptions& options, ImportNotes& notes)
      : wiring_(wiring), options_(options), notes_(notes) {}
  ServerGroup run(bool has_network);

 private:
  std::size_t device_count() const { return static_cast<std::size_t>(wiring_.devices); }
  PcieDistance between(std::size_t a, std::size_t b) const { return wiring_.distances[a][b]; }
  bool is_linked(std::size_t a, std::size_t b) const;
  std::int32_t port_lanes() const;
  Bandwidth lane() const;
  Bandwidth pcie() const;
  const KnownDevice* known() const;
  void find_sockets(Placement& placement) const;
  void deal_nics(Placement& placement);
  void add_spare_nics(Placement& placement);
  bool crosses_sockets(const Placement& placement) const;
  void add_links(const Placement& placement);
  void add_matrix();
  void add_listed_nics(Placement& placement);
  void add_asked_nics(Placement& placement);
  void add_roots(const Placement& placement);

  const ServerWiring& wiring_;
  const ForeignTopologyOptions& options_;
  ImportNotes& notes_;
  ServerGroup group_;
  // For each NIC of the group the NICs of the file that it combines.
  std::vector<Numbers> group_nics_;
};

const KnownDevice* GroupMaker::known() const {
  const std::optional<std::string>& name = options_.device ? options_.device : wiring_.device;
  return name ? find_device_kind(*name) : nullptr;
}

bool GroupMaker::is_linked(std::size_t a, std::size_t b) const {
  return port_lanes() > 0 ||
         wiring_.lanes(static_cast<Eigen::Index>(a), static_cast<Eigen::Index>(b)) > 0;
}

/// Returns the number of links of each device to the server's switch, or 0 if there is none. A
/// switch is assumed if the file states links to switches, or if every pair of devices has the same
/// number of links and a device would need more links than it has to reach all others directly.
std::int32_t GroupMaker::port_lanes() const {
  if (!wiring_.switch_lanes.empty()) {
    return *std::min_element(wiring_.switch_lanes.begin(), wiring_.switch_lanes.end());
  }
  if (wiring_.devices < 2) return 0;
  const std::int32_t lanes = wiring_.lanes(0, 1);
  for (std::int32_t a = 0; a < wiring_.devices; ++a) {
    for (std::int32_t b = 0; b < wiring_.devices; ++b) {
      if (a != b && wiring_.lanes(a, b) != lanes) return 0;
    }
  }
  const KnownDevice* device = known();
  const std::int32_t most = device != nullptr && device->lanes > 0 ? device->lanes : kMostLanes;
  return lanes * (wiring_.devices - 1) > most ? lanes : 0;
}

Bandwidth GroupMaker::lane() const {
  if (const auto asked = notes_.take("--nvlink-bandwidth", options_.nvlink)) return *asked;
  if (wiring_.lane) return *wiring_.lane;
  const KnownDevice* device = known();
  if (device != nullptr && device->lanes > 0) return device->lane;
  notes_.want("--nvlink-bandwidth",
              fmt::format("expected the bandwidth of one NVLink per direction, as \"20 GB/s\", or "
                          "a known --device; {} has links and says neither",
                          wiring_.file));
  return Bandwidth{1};
}

Bandwidth GroupMaker::pcie() const {
  if (const auto asked = notes_.take("--pcie-bandwidth", options_.pcie)) return *asked;
  if (wiring_.pcie) return *wiring_.pcie;
  if (const KnownDevice* device = known()) return device->pcie;
  notes_.want("--pcie-bandwidth",
              fmt::format("expected the bandwidth of a device's PCIe port, as \"24 GB/s\", or a "
                          "known --device; {} has pairs of devices without a direct link",
                          wiring_.file));
  return Bandwidth{1};
}

/// Numbers the sockets: ends whose distance is less than the interconnect of the sockets share one.
void GroupMaker::find_sockets(Placement& placement) const {
  const std::size_t count = wiring_.distances.size();
  placement.sockets.assign(count, -1);
  std::int32_t next = 0;
  for (std::size_t first = 0; first < count; ++first) {
    if (placement.sockets[first] >= 0) continue;
    std::vector<std::size_t> open{first};
    placement.sockets[first] = next;
    while (!open.empty()) {
      const std::size_t at = open.back();
      open.pop_back();
      for (std::size_t other = 0; other < count; ++other) {
        if (placement.sockets[other] >= 0 || between(at, other) > PcieDistance::Node) continue;
        placement.sockets[other] = next;
        open.push_back(other);
      }
    }
    ++next;
  }
}

/// Assigns to each device the nearest NIC, with ties broken by the fewest users, then by the lowest
/// number.
void GroupMaker::deal_nics(Placement& placement) {
  const std::size_t devices = device_count();
  placement.nics.assign(devices, {});
  Numbers users(wiring_.nics.size(), 0);
  for (std::size_t device = 0; device < devices && !users.empty(); ++device) {
    std::size_t best = 0;
    for (std::size_t nic = 1; nic < users.size(); ++nic) {
      const std::pair ours{between(device, devices + nic), users[nic]};
      if (ours < std::pair{between(device, devices + best), users[best]}) best = nic;
    }
    ++users[best];
    placement.nics[device].push_back(static_cast<std::int32_t>(best));
  }
}

/// Adds each NIC that no device uses to a device that is equally near to it as to its own NIC, and
/// shares its own with no other device; of several, to the one with the fewest NICs. Warns of NICs
/// that are left out.
void GroupMaker::add_spare_nics(Placement& placement) {
  const std::size_t devices = device_count();
  Numbers users(wiring_.nics.size(), 0);
  for (const Numbers& nics : placement.nics) {
    for (const std::int32_t nic : nics) ++users[static_cast<std::size_t>(nic)];
  }
  for (std::size_t nic = 0; nic < users.size(); ++nic) {
    if (users[nic] > 0) continue;
    Numbers* best = nullptr;
    for (std::size_t device = 0; device < devices; ++device) {
      Numbers& own = placement.nics[device];
      const auto first = static_cast<std::size_t>(own.front());
      const bool is_near = between(device, devices + nic) == between(device, devices + first) &&
                           between(device, devices + nic) < PcieDistance::Sys;
      if (!is_near || users[first] != 1) continue;
      if (best == nullptr || own.size() < best->size()) best = &own;
    }
    if (best != nullptr) {
      best->push_back(static_cast<std::int32_t>(nic));
    } else {
      notes_.warn(fmt::format("{}: {} is next to no device and is left out", wiring_.file,
                              shown(wiring_.nics[nic].name)));
    }
  }
}

bool GroupMaker::crosses_sockets(const Placement& placement) const {
  const std::size_t devices = device_count();
  for (std::size_t a = 0; a < devices; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (!is_linked(a, b) && placement.sockets[a] != placement.sockets[b]) return true;
    }
    if (group_.nics.empty() || placement.nics.empty()) continue;
    for (const std::int32_t nic : placement.nics[a]) {
      const std::size_t end = devices + static_cast<std::size_t>(nic);
      if (placement.sockets[a] != placement.sockets[end]) return true;
    }
  }
  return false;
}

void GroupMaker::add_matrix() {
  ServerLinks& links = group_.links;
  links.kind = ServerLinks::Kind::Matrix;
  links.matrix = Eigen::MatrixXi::Constant(wiring_.devices, wiring_.devices, kNoLink);
  std::vector<std::int32_t> counts;
  for (std::int32_t a = 0; a < wiring_.devices; ++a) {
    for (std::int32_t b = 0; b < wiring_.devices; ++b) {
      if (a != b && wiring_.lanes(a, b) > 0) counts.push_back(wiring_.lanes(a, b));
    }
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  for (const std::int32_t count : counts) {
    const Bandwidth bandwidth{count * lane().bytes_per_second};
    links.kinds.push_back({.name = fmt::format("{}{}", wiring_.lane_name, count),
                           .source = fmt::format("{} of {}; {}", links_text(count),
                                                 gigabytes(lane()), kLatencySource),
                           .link = {bandwidth, kLinkLatency},
                           .lanes = count});
  }
  // Topology files list kinds by name, so "NV12" precedes "NV2".
  std::sort(links.kinds.begin(), links.kinds.end(),
            [](const LinkKind& a, const LinkKind& b) { return a.name < b.name; });
  bool all_linked = true;
  for (std::int32_t a = 0; a < wiring_.devices; ++a) {
    for (std::int32_t b = 0; b < wiring_.devices; ++b) {
      if (a == b) continue;
      for (std::size_t kind = 0; kind < links.kinds.size(); ++kind) {
        if (links.kinds[kind].lanes == wiring_.lanes(a, b)) {
          links.matrix(a, b) = static_cast<int>(kind);
        }
      }
      all_linked = all_linked && wiring_.lanes(a, b) > 0;
    }
  }
  if (all_linked) return;
  links.host_path = Link{pcie(), kPcieLatency};
  links.host_path_source = fmt::format("a device's PCIe port; {}", kLatencySource);
}

void GroupMaker::add_links(const Placement& placement) {
  if (wiring_.devices < 2) return;
  ServerLinks& links = group_.links;
  links.source = wiring_.source;
  if (const std::int32_t lanes = port_lanes(); lanes > 0) {
    links.port = {Bandwidth{lanes * lane().bytes_per_second}, kLinkLatency};
    links.source = fmt::format("{}: {} of {} to a switch; {}", wiring_.source, links_text(lanes),
                               gigabytes(lane()), kLatencySource);
    return;
  }
  const bool has_lanes = wiring_.lanes.maxCoeff() > 0;
  if (has_lanes || crosses_sockets(placement)) {
    add_matrix();
    return;
  }
  links.port = {pcie(), kPcieLatency};
  links.source = fmt::format("{}: PCIe below one socket; {}", wiring_.source, kLatencySource);
}

void GroupMaker::add_listed_nics(Placement& placement) {
  if (options_.nics) {
    notes_.want("--nics", fmt::format("expected only where a file lists no NICs; {} lists {}",
                                      wiring_.file, wiring_.nics.size()));
  }
  deal_nics(placement);
  add_spare_nics(placement);
  for (std::int32_t device = 0; device < wiring_.devices; ++device) {
    const Numbers& own = placement.nics[static_cast<std::size_t>(device)];
    const auto found =
        std::find_if(group_nics_.begin(), group_nics_.end(),
                     [&](const Numbers& nics) { return nics.front() == own.front(); });
    if (found != group_nics_.end()) {
      group_.nics[static_cast<std::size_t>(found - group_nics_.begin())].devices.push_back(device);
      continue;
    }
    Nic nic{.source = "", .link = {Bandwidth{0}, kNicLatency}, .devices = {device}};
    std::string names;
    for (const std::int32_t number : own) {
      const WiredNic& listed = wiring_.nics[static_cast<std::size_t>(number)];
      const std::optional<Bandwidth> asked = notes_.take("--nic-bandwidth", options_.nic);
      const std::optional<Bandwidth> bandwidth = asked ? asked : listed.bandwidth;
      if (!bandwidth) {
        notes_.want("--nic-bandwidth",
                    fmt::format("expected the bandwidth of a NIC, as \"100 Gbit/s\"; {} does not "
                                "say it",
                                wiring_.file));
      }
      nic.link.bandwidth = nic.link.bandwidth + bandwidth.value_or(Bandwidth{1});
      names += (names.empty() ? "" : ", ") + shown(listed.name);
    }
    nic.source = fmt::format("{}; {}: network, 14 us, as 5 + 4 + 5", names, kLatencySource);
    group_.nics.push_back(std::move(nic));
    group_nics_.push_back(own);
  }
}

/// Adds NICs that the file does not list, with the devices distributed evenly over them.
void GroupMaker::add_asked_nics(Placement& placement) {
  if (!options_.nics) {
    notes_.want("--nics", fmt::format("expected the number of NICs of a server; {} lists none",
                                      wiring_.file));
  }
  if (!options_.nic) {
    notes_.want("--nic-bandwidth", "expected the bandwidth of a NIC, as \"100 Gbit/s\"");
  }
  const auto count = static_cast<std::int32_t>(notes_.take("--nics", options_.nics).value_or(1));
  const Link link{notes_.take("--nic-bandwidth", options_.nic).value_or(Bandwidth{1}), kNicLatency};
  const std::string source =
      fmt::format("as asked for; {}: network, 14 us, as 5 + 4 + 5", kLatencySource);
  for (std::int32_t nic = 0; nic < count; ++nic) {
    group_.nics.push_back({.source = source, .link = link, .devices = {}});
    group_nics_.push_back({nic});
    const std::int32_t beside = nic * wiring_.devices / count;
    placement.sockets.push_back(placement.sockets[static_cast<std::size_t>(beside)]);
  }
}

void GroupMaker::add_roots(const Placement& placement) {
  if (!crosses_sockets(placement)) return;
  const std::optional<Bandwidth> asked = notes_.take("--socket-bandwidth", options_.socket);
  const std::optional<Bandwidth> socket = asked ? asked : wiring_.socket;
  if (!socket) {
    notes_.want("--socket-bandwidth",
                fmt::format("expected what the interconnect of a server's sockets carries, as "
                            "\"10 GB/s\"; {} has devices or NICs that reach each other only over "
                            "it",
                            wiring_.file));
  }
  const std::string source =
      wiring_.socket_source.empty() || options_.socket
          ? "all that crosses the sockets, as asked for; its latency is part of the host path's"
          : wiring_.socket_source;
  std::vector<PcieRoot> roots;
  std::vector<std::int32_t> root_of_socket(placement.sockets.size(), -1);
  const auto root_at = [&](std::size_t end) -> PcieRoot& {
    std::int32_t& root = root_of_socket[static_cast<std::size_t>(placement.sockets[end])];
    if (root < 0) {
      root = static_cast<std::int32_t>(roots.size());
      roots.push_back({source, {socket.value_or(Bandwidth{1}), Duration{0}}, {}, {}});
    }
    return roots[static_cast<std::size_t>(root)];
  };
  for (std::size_t device = 0; device < device_count(); ++device) {
    root_at(device).devices.push_back(static_cast<std::int32_t>(device));
  }
  for (std::size_t nic = 0; nic < group_nics_.size(); ++nic) {
    const auto first = static_cast<std::size_t>(group_nics_[nic].front());
    root_at(device_count() + first).nics.push_back(static_cast<std::int32_t>(nic));
  }
  group_.pcie_roots = std::move(roots);
}

ServerGroup GroupMaker::run(bool has_network) {
  group_.name = "node";
  group_.device = options_.device ? *options_.device : wiring_.device.value_or("device");
  group_.devices = wiring_.devices;
  Placement placement;
  find_sockets(placement);
  const bool bandwidth_known =
      options_.nic || std::all_of(wiring_.nics.begin(), wiring_.nics.end(),
                                  [](const WiredNic& nic) { return nic.bandwidth.has_value(); });
  if (!wiring_.nics.empty() && (has_network || bandwidth_known)) {
    add_listed_nics(placement);
  } else if (has_network) {
    add_asked_nics(placement);
  }
  add_links(placement);
  add_roots(placement);
  return std::move(group_);
}

}  // namespace

void ImportNotes::warn(std::string warning) {
  if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) {
    warnings.push_back(std::move(warning));
  }
}

void ImportNotes::warn_of_oddities(const std::string& file,
                                   const std::vector<std::string>& oddities) {
  if (oddities.empty()) return;
  std::string list;
  for (const std::string& oddity : oddities) list += (list.empty() ? "" : "; ") + oddity;
  warn(fmt::format("{}: unusual, and read all the same: {}", file, list));
}

void ImportNotes::want(const std::string& option, const std::string& message) {
  const bool is_said = std::any_of(missing.begin(), missing.end(), [&](const Violation& violation) {
    return violation.place == option;
  });
  if (!is_said) missing.push_back({option, message});
}

void ImportNotes::warn_if_unused(const std::string& option, bool is_given,
                                 std::string_view purpose) {
  if (!is_given || used.count(option) > 0) return;
  warn(fmt::format("{} is not used: it is {}, of which there is none", option, purpose));
}

PcieDistance& distance(ServerWiring& wiring, std::size_t a, std::size_t b) {
  return wiring.distances[a][b];
}

void make_symmetric(ServerWiring& wiring, ImportNotes& notes) {
  const auto name = [&](std::size_t end) {
    const auto devices = static_cast<std::size_t>(wiring.devices);
    return end < devices ? fmt::format("GPU{}", end) : shown(wiring.nics[end - devices].name);
  };
  const auto differ = [&](std::size_t a, std::size_t b) {
    notes.warn(fmt::format("{}: {} sees {} in another way than {} sees {}; the slower one counts",
                           wiring.file, name(a), name(b), name(b), name(a)));
  };
  for (std::size_t a = 0; a < wiring.distances.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      PcieDistance& there = distance(wiring, a, b);
      PcieDistance& back = distance(wiring, b, a);
      const bool is_odd =
          there != back && there != PcieDistance::Unknown && back != PcieDistance::Unknown;
      // A distance that one direction leaves out is taken from the other.
      there = there == PcieDistance::Unknown  ? back
              : back == PcieDistance::Unknown ? there
                                              : std::max(there, back);
      back = there;
      bool has_odd_lanes = false;
      if (a < static_cast<std::size_t>(wiring.devices)) {
        auto& lanes = wiring.lanes(static_cast<Eigen::Index>(a), static_cast<Eigen::Index>(b));
        auto& lanes_back = wiring.lanes(static_cast<Eigen::Index>(b), static_cast<Eigen::Index>(a));
        has_odd_lanes = lanes != lanes_back;
        lanes = std::min(lanes, lanes_back);
        lanes_back = lanes;
      }
      if (is_odd || has_odd_lanes) differ(a, b);
    }
  }
}

DeviceKind device_kind(const std::optional<std::string>& name, const std::string& file,
                       const ForeignTopologyOptions& options, ImportNotes& notes) {
  const std::optional<std::string>& chosen = options.device ? options.device : name;
  const KnownDevice* known = chosen ? find_device_kind(*chosen) : nullptr;
  if (options.device && name && options.device != name) {
    notes.warn(fmt::format("{}: its devices are of kind {}, --device says {}", file, *name,
                           shown(*options.device)));
  }
  if (!chosen) {
    notes.want("--device", fmt::format("expected the kind of the devices, which {} does not say: "
                                       "{}, or another name with --memory",
                                       file, known_device_names()));
  } else if (known == nullptr && !options.memory) {
    notes.want("--memory", fmt::format("expected the memory of a {}, as \"80 GiB\"; known kinds "
                                       "are {}",
                                       shown(*chosen), known_device_names()));
  }
  DeviceKind kind;
  kind.name = chosen.value_or("device");
  kind.reserved = options.reserved;
  kind.memory = Bytes{(known == nullptr ? 1024 : known->memory_mib) << 20};
  kind.source = fmt::format("memory: {}; reserved for driver, framework and cuDNN: an allowance",
                            options.memory ? "as asked for" : "its maker's datasheet");
  if (options.memory) {
    if (known != nullptr && *options.memory != kind.memory) {
      notes.warn(fmt::format("a {} has {} MiB, --memory says {}", kind.name, known->memory_mib,
                             options.memory->count >> 20));
    }
    kind.memory = *options.memory;
  }
  if (kind.reserved >= kind.memory && (known != nullptr || options.memory)) {
    notes.want("--reserved", "expected less than the memory of a device");
  }
  return kind;
}

ServerGroup server_group(const ServerWiring& wiring, const ForeignTopologyOptions& options,
                         bool has_network, ImportNotes& notes) {
  return GroupMaker(wiring, options, notes).run(has_network);
}

std::optional<Bandwidth> pcie_bandwidth(std::string_view transfers, std::int32_t width) {
  struct Generation {
    std::string_view transfers;
    std::int64_t speed;
  };
  constexpr Generation kGenerations[] = {{"2.5", 15}, {"5", 30},   {"8", 60},
                                         {"16", 120}, {"32", 240}, {"64", 480}};
  const std::vector<std::string_view> words = words_of(transfers);
  if (words.size() < 2 || words[1] != "GT/s" || width < 1) return std::nullopt;
  std::string_view number = words[0];
  if (number.size() > 2 && number.substr(number.size() - 2) == ".0") number.remove_suffix(2);
  for (const Generation& generation : kGenerations) {
    if (number == generation.transfers) {
      return Bandwidth{width * generation.speed * 1'000'000'000 / 80};
    }
  }
  return std::nullopt;
}

std::string gigabytes(Bandwidth bandwidth) {
  const std::int64_t thousandths = bandwidth.bytes_per_second / 1'000'000;
  std::string text = fmt::format("{}.{:03}", thousandths / 1000, thousandths % 1000);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text + " GB/s";
}

}  // namespace dapple::interop
