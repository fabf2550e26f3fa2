#include "topology/check_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace dapple {
namespace {

/// Collects violations.
class ViolationList {
 protected:
  void add(std::string place, std::string message) {
    violations_.push_back({std::move(place), std::move(message)});
  }

  void append(const std::vector<Violation>& others) {
    violations_.insert(violations_.end(), others.begin(), others.end());
  }

  void check_bandwidth(Bandwidth bandwidth, const std::string& place) {
    if (bandwidth.bytes_per_second > 0) return;
    add(place + "/bandwidth",
        fmt::format("expected more than 0 B/s, got {} B/s", bandwidth.bytes_per_second));
  }

  std::vector<Violation> violations_;
};

/// Checks the links between the devices of a server: its switch, or its link matrix.
class LinkChecker : private ViolationList {
 public:
  std::vector<Violation> run(const ServerGroup& group, const std::string& place) && {
    check_links(group, place);
    return std::move(violations_);
  }

 private:
  void check_links(const ServerGroup& group, const std::string& place) {
    if (group.links.kind == ServerLinks::Kind::Switch) {
      check_bandwidth(group.links.port.bandwidth, place);
      return;
    }
    check_link_kinds(group.links, place);
    check_matrix_entries(group, place);
    if (violations_.empty()) check_reach(group, place);
  }

  void check_link_kinds(const ServerLinks& links, const std::string& place) {
    std::set<std::string> names;
    for (const LinkKind& kind : links.kinds) {
      const std::string kind_place = place + "/kinds/" + pointer_step(kind.name);
      if (!names.insert(kind.name).second) {
        add(kind_place, fmt::format("expected each link kind once, got \"{}\" twice", kind.name));
      }
      check_bandwidth(kind.link.bandwidth, kind_place);
      if (kind.lanes < 1 ||
          kind.lanes > std::max<std::int64_t>(1, kind.link.bandwidth.bytes_per_second)) {
        add(kind_place + "/lanes",
            fmt::format("expected at least one lane, of at least 1 B/s each, got {}", kind.lanes));
      }
    }
    if (links.host_path) check_bandwidth(links.host_path->bandwidth, place + "/host_path");
  }

  void check_matrix_entries(const ServerGroup& group, const std::string& place) {
    const Eigen::MatrixXi& matrix = group.links.matrix;
    if (matrix.rows() != group.devices || matrix.cols() != group.devices) {
      add(place + "/matrix", fmt::format("expected {0} rows of {0} entries, one per device, got "
                                         "{1} of {2}",
                                         group.devices, matrix.rows(), matrix.cols()));
      return;
    }
    const auto kinds = static_cast<int>(group.links.kinds.size());
    for (Eigen::Index from = 0; from < matrix.rows(); ++from) {
      for (Eigen::Index to = 0; to < matrix.cols(); ++to) {
        const int entry = matrix(from, to);
        const std::string entry_place = fmt::format("{}/matrix/{}/{}", place, from, to);
        if (entry < kNoLink || entry >= kinds) {
          add(entry_place, fmt::format("expected a link kind below {}, got {}", kinds, entry));
        } else if (from == to && entry != kNoLink) {
          add(entry_place, "expected no link from a device to itself, got \"" +
                               group.links.kinds[static_cast<std::size_t>(entry)].name + "\"");
        }
      }
    }
  }

  /// Reports the first pair of devices without a path by name and only counts the others, of which
  /// there are often many.
  void check_reach(const ServerGroup& group, const std::string& place) {
    if (group.links.host_path) return;
    std::string first;
    std::int64_t more = 0;
    const Eigen::MatrixXi& matrix = group.links.matrix;
    for (Eigen::Index from = 0; from < matrix.rows(); ++from) {
      for (Eigen::Index to = 0; to < matrix.cols(); ++to) {
        if (from == to || matrix(from, to) != kNoLink) continue;
        if (first.empty()) {
          first = fmt::format("{0}0:{1} cannot reach {0}0:{2}", group.name, from, to);
        } else {
          ++more;
        }
      }
    }
    if (first.empty()) return;
    const std::string others =
        more == 0 ? "" : fmt::format(", like {} other pair{}", more, more == 1 ? "" : "s");
    add(place,
        fmt::format("{}: expected a direct link or a host_path, got neither{}", first, others));
  }
};

/// Checks the NICs of a server and which devices use them.
class NicChecker : private ViolationList {
 public:
  explicit NicChecker(bool must_exist) : must_exist_(must_exist) {}

  std::vector<Violation> run(const ServerGroup& group, const std::string& place) && {
    check_nics(group, place);
    return std::move(violations_);
  }

 private:
  void check_nics(const ServerGroup& group, const std::string& place) {
    if (group.nics.empty()) {
      if (must_exist_) {
        add(place, "expected at least one NIC, as there are several servers, got none");
      }
      return;
    }
    for (std::size_t i = 0; i < group.nics.size(); ++i) {
      check_bandwidth(group.nics[i].link.bandwidth, fmt::format("{}/{}", place, i));
    }
    const bool listed = std::any_of(group.nics.begin(), group.nics.end(),
                                    [](const Nic& nic) { return !nic.devices.empty(); });
    if (listed) check_nic_lists(group, place);
  }

  void check_nic_lists(const ServerGroup& group, const std::string& place) {
    std::map<std::int32_t, std::size_t> owner;
    for (std::size_t i = 0; i < group.nics.size(); ++i) {
      const std::string list_place = fmt::format("{}/{}/devices", place, i);
      if (group.nics[i].devices.empty()) {
        add(list_place,
            "expected the devices that use it, as other NICs here name theirs, got none");
      }
      for (const std::int32_t device : group.nics[i].devices) {
        if (device < 0 || device >= group.devices) {
          add(list_place, fmt::format("expected device numbers from 0 to {}, got {}",
                                      group.devices - 1, device));
          continue;
        }
        const auto [entry, is_new] = owner.emplace(device, i);
        if (is_new) continue;
        add(list_place,
            fmt::format(
                "expected each device at one NIC, got device {} {}", device,
                entry->second == i ? "twice" : fmt::format("of NIC {} again", entry->second)));
      }
    }
    for (std::int32_t device = 0; device < group.devices; ++device) {
      if (owner.count(device) != 0) continue;
      add(place, fmt::format("expected a NIC for each device, got none for device {}", device));
      return;
    }
  }

  // Whether the server needs a NIC, because there are others.
  const bool must_exist_;
};

/// Checks the PCIe roots of a server and which devices and NICs are below them.
class RootChecker : private ViolationList {
 public:
  std::vector<Violation> run(const ServerGroup& group, const std::string& place) && {
    check_roots(group, place);
    return std::move(violations_);
  }

 private:
  void check_roots(const ServerGroup& group, const std::string& place) {
    if (group.pcie_roots.empty()) return;
    std::vector<std::vector<std::int32_t>> devices;
    std::vector<std::vector<std::int32_t>> nics;
    for (std::size_t i = 0; i < group.pcie_roots.size(); ++i) {
      check_bandwidth(group.pcie_roots[i].link.bandwidth, fmt::format("{}/{}", place, i));
      devices.push_back(group.pcie_roots[i].devices);
      nics.push_back(group.pcie_roots[i].nics);
    }
    check_below_roots(devices, {.what = "device", .count = group.devices}, place);
    check_below_roots(nics, {.what = "NIC", .count = static_cast<std::int32_t>(group.nics.size())},
                      place);
  }

  /// The devices or the NICs of a server, each of which must be below one root.
  struct Numbered {
    std::string_view what;
    std::int32_t count = 0;
  };
  void check_below_roots(const std::vector<std::vector<std::int32_t>>& roots,
                         const Numbered& things, const std::string& place) {
    std::map<std::int32_t, std::size_t> owner;
    for (std::size_t i = 0; i < roots.size(); ++i) {
      const std::string list_place =
          fmt::format("{}/{}/{}", place, i, things.what == "NIC" ? "nics" : "devices");
      for (const std::int32_t number : roots[i]) {
        if (number < 0 || number >= things.count) {
          add(list_place, fmt::format("expected {} numbers below {}, got {}", things.what,
                                      things.count, number));
          continue;
        }
        const auto [entry, is_new] = owner.emplace(number, i);
        if (is_new) continue;
        add(list_place,
            fmt::format(
                "expected each {0} below one root, got {0} {1} {2}", things.what, number,
                entry->second == i ? "twice" : fmt::format("of root {} again", entry->second)));
      }
    }
    for (std::int32_t number = 0; number < things.count; ++number) {
      if (owner.count(number) != 0) continue;
      add(place,
          fmt::format("expected each {0} below a root, got none for {0} {1}", things.what, number));
      return;
    }
  }
};

/// Checks the measured bandwidths of all-reduces.
class BusBandwidthChecker : private ViolationList {
 public:
  std::vector<Violation> run(const ServerGroup& group, const std::string& place) && {
    check_bus_bandwidth(group, place);
    return std::move(violations_);
  }

 private:
  void check_bus_bandwidth(const ServerGroup& group, const std::string& place) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> owner;
    for (std::size_t i = 0; i < group.bus_bandwidth.size(); ++i) {
      const BusBandwidthTable& table = group.bus_bandwidth[i];
      const std::string own_place = fmt::format("{}/{}", place, i);
      if (table.servers < 1 || table.servers > group.count) {
        add(own_place + "/servers",
            fmt::format("expected from 1 to the {} servers, got {}", group.count, table.servers));
      }
      if (table.devices < 1 || table.devices > group.devices) {
        add(own_place + "/devices", fmt::format("expected from 1 to the {} devices of a server, "
                                                "got {}",
                                                group.devices, table.devices));
      }
      if (table.ranks() < 2) {
        add(own_place, "expected two devices or more, got one");
        continue;
      }
      const auto [entry, is_new] = owner.emplace(std::pair{table.servers, table.devices}, i);
      if (!is_new) {
        add(own_place, fmt::format("expected other servers and devices than in {}/{}, got the same",
                                   place, entry->second));
      }
      check_points(table, own_place + "/points");
    }
  }

  /// Checks the points of a table, among others that larger messages do not take less time: that
  /// would be a measurement error, and would make plans with larger buckets faster for no reason.
  void check_points(const BusBandwidthTable& table, const std::string& place) {
    constexpr Wide kLongest{1'000'000'000'000'000};  // 11 days
    if (table.points.empty()) add(place, "expected at least one point, got none");
    const BusBandwidthTable::Point* before = nullptr;
    for (std::size_t i = 0; i < table.points.size(); ++i) {
      const BusBandwidthTable::Point& point = table.points[i];
      const std::string own_place = fmt::format("{}/{}", place, i);
      const std::size_t faults = violations_.size();
      check_bandwidth(point.bandwidth, own_place);
      if (point.size.count < 1 || (before != nullptr && point.size <= before->size)) {
        add(own_place + "/size",
            fmt::format("expected more than {} B, got {} B",
                        before == nullptr ? 0 : before->size.count, point.size.count));
      }
      if (violations_.size() != faults) return;
      if (Wide{2} * point.size.count * kNanosecondsPerSecond >
          kLongest * point.bandwidth.bytes_per_second) {
        add(own_place, "expected a message that takes at most 11 days, got one that takes longer");
        return;
      }
      if (before != nullptr && reduction_time(table, point) < reduction_time(table, *before)) {
        add(own_place,
            fmt::format("expected at least the {} ns of the smaller message before it, "
                        "got {} ns",
                        reduction_time(table, *before).ns, reduction_time(table, point).ns));
      }
      before = &point;
    }
  }
};

/// Checks a group of servers: their devices, links, NICs, PCIe roots and measured bandwidths.
class GroupChecker : private ViolationList {
 public:
  explicit GroupChecker(const TopologyDescription& description) : description_(description) {}

  std::vector<Violation> run(const ServerGroup& group, const std::string& place) && {
    check_group(group, place);
    return std::move(violations_);
  }

 private:
  void check_group(const ServerGroup& group, const std::string& place) {
    if (group.count < 1) {
      add(place + "/count", fmt::format("expected at least one server, got {}", group.count));
    }
    if (group.devices < 1) {
      add(place + "/devices", fmt::format("expected at least one device, got {}", group.devices));
    }
    check_device_kind(group, place);
    if (group.count < 1 || group.devices < 1 || group.devices > kMostDevices) return;
    if (group.devices > 1) append(LinkChecker().run(group, place + "/links"));
    append(NicChecker(server_count(description_) > 1).run(group, place + "/nics"));
    append(RootChecker().run(group, place + "/pcie_roots"));
    append(BusBandwidthChecker().run(group, place + "/bus_bandwidth"));
  }

  void check_device_kind(const ServerGroup& group, const std::string& place) {
    std::string known;
    for (const DeviceKind& kind : description_.devices) {
      if (kind.name == group.device) return;
      known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", kind.name);
    }
    add(place + "/device", fmt::format("expected a device kind of this file ({}), got \"{}\"",
                                       known.empty() ? "it has none" : known, group.device));
  }

  const TopologyDescription& description_;
};

/// Checks a whole description.
class Checker : private ViolationList {
 public:
  explicit Checker(const TopologyDescription& description) : description_(description) {}

  std::vector<Violation> run() {
    check_kinds();
    if (description_.servers.empty()) add("/servers", "expected at least one server, got none");
    for (std::size_t i = 0; i < description_.servers.size(); ++i) {
      append(
          GroupChecker(description_).run(description_.servers[i], fmt::format("/servers/{}", i)));
    }
    check_network();
    check_uplinks();
    if (check_total()) check_names();
    return std::move(violations_);
  }

 private:
  void check_kinds() {
    std::set<std::string> names;
    for (const DeviceKind& kind : description_.devices) {
      const std::string place = "/devices/" + pointer_step(kind.name);
      if (!names.insert(kind.name).second) {
        add(place, fmt::format("expected each device kind once, got \"{}\" twice", kind.name));
      }
      if (kind.reserved >= kind.memory) {
        add(place + "/reserved", fmt::format("expected less than the memory of {} B, got {} B",
                                             kind.memory.count, kind.reserved.count));
      }
    }
  }

  void check_uplinks() {
    check_uplink_groups(description_.racks, "/racks", "servers", server_count(description_));
    if (!description_.pods.empty() && description_.racks.empty()) {
      add("/pods", "expected racks, as there are pods, got none");
      return;
    }
    std::int64_t racks = 0;
    for (const UplinkGroup& group : description_.racks) racks += group.count;
    check_uplink_groups(description_.pods, "/pods", "racks", racks);
  }

  void check_uplink_groups(const std::vector<UplinkGroup>& groups, const std::string& place,
                           const std::string& members, std::int64_t wanted) {
    if (groups.empty()) return;
    Wide taken = 0;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const UplinkGroup& group = groups[i];
      const std::string own_place = fmt::format("{}/{}", place, i);
      if (group.count < 1) {
        add(own_place + "/count", fmt::format("expected at least one, got {}", group.count));
      }
      if (group.members < 1) {
        add(own_place + "/" + members, fmt::format("expected at least one, got {}", group.members));
      }
      if (group.bandwidth) check_bandwidth(*group.bandwidth, own_place + "/uplink");
      if (group.oversubscription.billionths <= 0) {
        add(own_place + "/uplink/oversubscription",
            fmt::format("expected more than 0, got {} billionths",
                        group.oversubscription.billionths));
      }
      taken += Wide{group.count} * group.members;
    }
    if (taken == wanted) return;
    add(place, fmt::format("expected {} for all of the {} {}, got {}", place.substr(1), wanted,
                           members, static_cast<std::int64_t>(taken)));
  }

  void check_network() {
    if (description_.network) {
      check_bandwidth(description_.network->bandwidth, "/network");
    } else if (server_count(description_) > 1) {
      add("/network", "expected a network, as there are several servers, got none");
    }
  }

  /// Checks the numbers of devices and ports; returns false if there are too many devices for the
  /// names of all servers to be checked.
  bool check_total() {
    Wide devices = 0;
    Wide ports = 0;
    for (const ServerGroup& group : description_.servers) {
      if (group.count < 1 || group.devices < 1) continue;
      devices += Wide{group.count} * group.devices;
      ports += Wide{group.count} *
               (2 * Wide{group.devices} + 2 * Wide{nic_count(group)} + Wide{direct_links(group)} +
                2 * static_cast<std::int64_t>(group.pcie_roots.size()));
    }
    if (devices > kMostDevices) {
      add("/servers", fmt::format("expected at most {} devices, got {}", kMostDevices,
                                  static_cast<std::int64_t>(devices)));
      return false;
    }
    if (ports > kMostPorts) {
      add("/servers", fmt::format("expected at most {} ports of devices, NICs and direct links, "
                                  "got {}",
                                  kMostPorts, static_cast<std::int64_t>(ports)));
    }
    return true;
  }

  static std::int64_t nic_count(const ServerGroup& group) {
    return static_cast<std::int64_t>(group.nics.size());
  }

  static std::int64_t direct_links(const ServerGroup& group) {
    const bool matrix = group.links.kind == ServerLinks::Kind::Matrix && group.devices > 1;
    return matrix ? (group.links.matrix.array() != kNoLink).count() : 0;
  }

  /// Checks that server names are distinct: group "a" with twelve servers has an "a10", and so has
  /// group "a1" with one.
  void check_names() {
    std::map<std::string, std::size_t> owner;
    for (std::size_t i = 0; i < description_.servers.size(); ++i) {
      const ServerGroup& group = description_.servers[i];
      for (std::int32_t number = 0; number < group.count; ++number) {
        const std::string name = group.name + std::to_string(number);
        const auto [entry, is_new] = owner.emplace(name, i);
        if (is_new) continue;
        add(fmt::format("/servers/{}/name", i),
            fmt::format("expected server names that differ once numbered, got \"{}\", which "
                        "/servers/{} has too",
                        name, entry->second));
        break;
      }
    }
  }

  const TopologyDescription& description_;
};

/// Returns the root of each of `count` devices or NICs, according to the lists of the roots.
std::vector<std::int32_t> by_root(const ServerGroup& group, std::size_t count,
                                  std::vector<std::int32_t> PcieRoot::*below) {
  if (group.pcie_roots.empty()) return {};
  std::vector<std::int32_t> roots(count);
  for (std::size_t root = 0; root < group.pcie_roots.size(); ++root) {
    for (const std::int32_t number : group.pcie_roots[root].*below) {
      roots[static_cast<std::size_t>(number)] = static_cast<std::int32_t>(root);
    }
  }
  return roots;
}

}  // namespace

std::vector<Violation> check_description(const TopologyDescription& description) {
  return Checker(description).run();
}

std::vector<std::int32_t> nics_by_device(const ServerGroup& group) {
  if (group.nics.empty()) return {};
  std::vector<std::int32_t> nics(static_cast<std::size_t>(group.devices));
  bool listed = false;
  for (std::size_t nic = 0; nic < group.nics.size(); ++nic) {
    for (const std::int32_t device : group.nics[nic].devices) {
      listed = true;
      nics[static_cast<std::size_t>(device)] = static_cast<std::int32_t>(nic);
    }
  }
  if (listed) return nics;
  const auto count = static_cast<std::int64_t>(group.nics.size());
  for (std::int64_t device = 0; device < group.devices; ++device) {
    nics[static_cast<std::size_t>(device)] =
        static_cast<std::int32_t>(device * count / group.devices);
  }
  return nics;
}

std::vector<std::int32_t> roots_by_device(const ServerGroup& group) {
  return by_root(group, static_cast<std::size_t>(group.devices), &PcieRoot::devices);
}

std::vector<std::int32_t> roots_by_nic(const ServerGroup& group) {
  return by_root(group, group.nics.size(), &PcieRoot::nics);
}

}  // namespace dapple
