#include "app/commands/pareto/variations.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "dapple/core/characters.h"
#include "dapple/core/error.h"
#include "dapple/io/documents/documents.h"
#include "dapple/topology/memory_limit.h"

namespace dapple::app {
namespace {

/// The most counts of servers of one kind that are tried one by one.
constexpr std::int64_t kFewCounts = 16;
/// The most clusters of several kinds of servers.
constexpr std::size_t kMostClusters = 64;

/// Returns counts from 1 to `whole`, ascending, each about twice the last one, with one in the
/// middle.
std::vector<std::int32_t> doubled_counts(std::int32_t whole) {
  std::vector<std::int32_t> counts;
  for (std::int32_t count = 1; count <= whole; count *= 2) {
    counts.push_back(count);
    const std::int32_t middle = count + count / 2;
    if (middle > count && middle <= whole) counts.push_back(middle);
    if (count > whole / 2) break;
  }
  if (counts.back() != whole) counts.push_back(whole);
  return counts;
}

std::vector<std::int32_t> all_counts(std::int32_t whole) {
  std::vector<std::int32_t> counts;
  for (std::int32_t count = 1; count <= whole; ++count) counts.push_back(count);
  return counts;
}

/// Returns counts up to `whole`, ascending: all if these are few.
std::vector<std::int32_t> counts_up_to(std::int32_t whole) {
  return whole <= kFewCounts ? all_counts(whole) : doubled_counts(whole);
}

/// Returns counts up to `whole`, ascending, each about half as many as the next.
std::vector<std::int32_t> halved_counts(std::int32_t whole) {
  std::vector<std::int32_t> counts;
  for (std::int32_t count = whole; count > 0; count /= 2) counts.push_back(count);
  std::reverse(counts.begin(), counts.end());
  return counts;
}

Error unsuited(const std::string& source_name, const char* place, const char* message) {
  return Error{ErrorKind::BadInput, source_name, {{place, message}}};
}

/// Returns the topology with that many servers of each kind, without what then has no meaning.
TopologyDescription with_counts(TopologyDescription topology,
                                const std::vector<std::int32_t>& counts) {
  for (std::size_t i = 0; i < counts.size(); ++i) topology.servers[i].count = counts[i];
  std::erase_if(topology.servers, [](const ServerGroup& group) { return group.count == 0; });
  for (ServerGroup& group : topology.servers) {
    std::erase_if(group.bus_bandwidth,
                  [&](const BusBandwidthTable& table) { return table.servers > group.count; });
  }
  std::erase_if(topology.devices, [&](const DeviceKind& kind) {
    return std::none_of(topology.servers.begin(), topology.servers.end(),
                        [&](const ServerGroup& group) { return group.device == kind.name; });
  });
  return topology;
}

/// Returns so many devices of one server; nothing if its devices are not interchangeable.
std::optional<TopologyDescription> part_of_server(TopologyDescription topology,
                                                  std::int32_t devices) {
  ServerGroup& group = topology.servers.front();
  if (group.links.kind == ServerLinks::Kind::Matrix || !group.pcie_roots.empty()) {
    return std::nullopt;
  }
  group.count = 1;
  group.devices = devices;
  group.nics.clear();
  std::erase_if(group.bus_bandwidth, [&](const BusBandwidthTable& table) {
    return table.servers > 1 || table.devices > devices;
  });
  topology.racks.clear();
  return topology;
}

/// Returns the numbers of servers of one kind that are tried: of one rack, and whole racks.
std::vector<std::int32_t> server_counts(const TopologyDescription& topology) {
  const std::int32_t whole = topology.servers.front().count;
  if (topology.racks.empty()) return counts_up_to(whole);
  const std::int32_t members = topology.racks.front().members;
  std::vector<std::int32_t> counts = counts_up_to(members);
  for (const std::int32_t racks : counts_up_to(topology.racks.front().count)) {
    if (racks > 1) counts.push_back(racks * members);
  }
  return counts;
}

/// Returns clusters of one kind of servers.
std::vector<TopologyDescription> of_one_kind(const TopologyDescription& topology) {
  std::vector<TopologyDescription> clusters;
  const std::int32_t whole = topology.servers.front().devices;
  for (const std::int32_t devices : halved_counts(whole)) {
    if (devices == whole) continue;
    if (auto part = part_of_server(topology, devices)) clusters.push_back(*std::move(part));
  }
  for (const std::int32_t count : server_counts(topology)) {
    TopologyDescription cluster = with_counts(topology, {count});
    if (!cluster.racks.empty()) {
      const std::int32_t members = cluster.racks.front().members;
      cluster.racks.front().count = count / members;
      if (count <= members) cluster.racks.clear();
    }
    clusters.push_back(std::move(cluster));
  }
  return clusters;
}

/// Returns lists of counts of servers of one kind, each shorter than the one before, descending and
/// most with none at the end. The last one is of all servers alone.
std::vector<std::vector<std::int32_t>> shorter_lists(std::int32_t whole) {
  std::vector<std::vector<std::int32_t>> lists;
  const std::vector<std::int32_t> alone{whole};
  for (const auto& counts :
       {counts_up_to(whole), doubled_counts(whole), halved_counts(whole), alone}) {
    std::vector<std::int32_t> list(counts.rbegin(), counts.rend());
    list.push_back(0);
    if (lists.empty() || list.size() < lists.back().size()) lists.push_back(std::move(list));
  }
  lists.push_back(alone);
  return lists;
}

/// Returns counts of the servers of each kind that make kMostClusters at most: all, or of the kinds
/// with the most of them fewer.
std::vector<std::vector<std::int32_t>> counts_of_kinds(const TopologyDescription& topology) {
  std::vector<std::vector<std::vector<std::int32_t>>> lists;
  for (const ServerGroup& group : topology.servers) lists.push_back(shorter_lists(group.count));
  std::vector<std::size_t> chosen(lists.size(), 0);
  const auto size = [&](std::size_t kind) { return lists[kind][chosen[kind]].size(); };
  const auto are_too_many = [&] {
    std::size_t clusters = 1;
    for (std::size_t kind = 0; kind < lists.size() && clusters <= kMostClusters; ++kind) {
      clusters *= size(kind);
    }
    return clusters > kMostClusters;
  };
  while (are_too_many()) {
    std::size_t longest = 0;
    for (std::size_t kind = 1; kind < lists.size(); ++kind) {
      // The last of equally long lists is shortened.
      if (size(kind) >= size(longest)) longest = kind;
    }
    ++chosen[longest];
  }
  std::vector<std::vector<std::int32_t>> counts;
  for (std::size_t kind = 0; kind < lists.size(); ++kind) {
    counts.push_back(lists[kind][chosen[kind]]);
  }
  return counts;
}

/// Returns clusters of several kinds of servers.
std::vector<TopologyDescription> of_several_kinds(const TopologyDescription& topology) {
  std::vector<std::vector<std::int32_t>> chosen{{}};
  for (const std::vector<std::int32_t>& choices : counts_of_kinds(topology)) {
    std::vector<std::vector<std::int32_t>> longer;
    for (const std::vector<std::int32_t>& counts : chosen) {
      for (const std::int32_t count : choices) {
        longer.push_back(counts);
        longer.back().push_back(count);
      }
    }
    chosen = std::move(longer);
  }
  std::erase_if(chosen, [](const std::vector<std::int32_t>& counts) {
    return std::all_of(counts.begin(), counts.end(), [](std::int32_t count) { return count == 0; });
  });
  std::vector<TopologyDescription> clusters;
  for (const std::vector<std::int32_t>& counts : chosen) {
    clusters.push_back(with_counts(topology, counts));
  }
  return clusters;
}

/// Says which numbers of servers the clusters have, for each kind of which they do not have all.
/// Where there are several kinds, a cluster without one of them has 0 servers of it.
void note_counts(const TopologyDescription& topology,
                 const std::vector<TopologyDescription>& clusters,
                 std::vector<std::string>& left_out) {
  for (const ServerGroup& group : topology.servers) {
    std::set<std::int32_t> counts;
    for (const TopologyDescription& cluster : clusters) {
      const auto own =
          std::find_if(cluster.servers.begin(), cluster.servers.end(),
                       [&](const ServerGroup& some) { return some.name == group.name; });
      counts.insert(own == cluster.servers.end() ? 0 : own->count);
    }
    const std::int32_t none = topology.servers.size() > 1 ? 1 : 0;
    if (std::ssize(counts) == group.count + none) continue;
    left_out.push_back(fmt::format("numbers of servers {} other than {} are left out",
                                   printable(group.name), fmt::join(counts, ", ")));
  }
}

}  // namespace

std::vector<TopologyDescription> smaller_clusters(const TopologyDescription& topology,
                                                  const std::string& source_name,
                                                  std::vector<std::string>& left_out) {
  if (!topology.pods.empty()) {
    throw unsuited(source_name, "/pods", "expected none, to take fewer servers, got some");
  }
  if (topology.racks.size() > 1 || (!topology.racks.empty() && topology.servers.size() > 1)) {
    throw unsuited(source_name, "/racks",
                   "expected racks of one size with one kind of servers, to take fewer of them");
  }
  std::vector<TopologyDescription> clusters =
      topology.servers.size() == 1 ? of_one_kind(topology) : of_several_kinds(topology);
  note_counts(topology, clusters, left_out);
  std::stable_sort(clusters.begin(), clusters.end(),
                   [](const auto& a, const auto& b) { return device_count(a) < device_count(b); });
  std::vector<TopologyDescription> sound;
  for (TopologyDescription& cluster : clusters) {
    const std::int64_t devices = device_count(cluster);
    if (devices < device_count(topology)) {
      cluster.name = name_with(topology.name,
                               fmt::format("{} of {} devices", devices, device_count(topology)));
    }
    // A smaller cluster may lack what a file must state, such as links to other servers.
    try {
      sound.push_back(io::read_topology(io::write_topology(cluster), source_name));
    } catch (const Error& error) {
      if (devices == device_count(topology)) throw;
      left_out.push_back(fmt::format("{} is left out: {}", servers_text(cluster, topology),
                                     error.violations().front().message));
    }
  }
  return sound;
}

std::string name_with(const std::string& name, const std::string& remark) {
  constexpr std::size_t kLongest = 200;  // bytes, at most as many characters
  std::string_view kept = name;
  const std::size_t room = kLongest - std::min(kLongest, remark.size() + 2);
  while (kept.size() > room) {
    // Bytes within a character are removed with its first one.
    do {
      kept.remove_suffix(1);
    } while (!kept.empty() && !first_character(name.substr(kept.size())).is_valid);
  }
  return fmt::format("{}, {}", kept, remark);
}

std::int64_t device_count(const TopologyDescription& topology) {
  std::int64_t count = 0;
  for (const ServerGroup& group : topology.servers) {
    count += std::int64_t{group.count} * group.devices;
  }
  return count;
}

std::string servers_text(const TopologyDescription& cluster, const TopologyDescription& whole) {
  std::vector<std::string> parts;
  for (const ServerGroup& group : cluster.servers) {
    const auto full =
        std::find_if(whole.servers.begin(), whole.servers.end(),
                     [&](const ServerGroup& other) { return other.name == group.name; });
    const bool is_part = full != whole.servers.end() && group.devices < full->devices;
    parts.push_back(is_part ? fmt::format("{} of {}", group.devices, printable(group.name))
                            : fmt::format("{} x {}", group.count, printable(group.name)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

TopologyDescription named_with_memory_limit(const TopologyDescription& topology, Bytes limit) {
  TopologyDescription limited = with_memory_limit(topology, limit);
  limited.name = name_with(topology.name, fmt::format("{} bytes a device", limit.count));
  return limited;
}

}  // namespace dapple::app
