// Exports the placement of processes in forms that launchers accept, so that ranks run on the
// devices that the plan chose.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "interop/exports/exporting.h"

namespace dapple::interop {
namespace {

/// The place of a rank: its device, and the server and the GPU there.
struct RankPlace {
  DeviceIndex device;
  std::string server;
  std::size_t gpu = 0;
};

/// Returns the place of one of a device's GPUs, which are consecutive in one server or more.
RankPlace place_of(const ExportSubject& subject, DeviceIndex device, std::size_t gpu) {
  const auto members = static_cast<std::size_t>(subject.topology.description().group_size);
  const std::size_t gpus_of_member = gpus_of_device(subject.document) / members;
  const GroupMember member =
      subject.topology.group_member(device, static_cast<std::int64_t>(gpu / gpus_of_member));
  return {device, member.server,
          static_cast<std::size_t>(member.number) * gpus_of_member + gpu % gpus_of_member};
}

/// Returns the name of the rank's server, which launchers use as a host name. Throws
/// Error(BadInput) if it cannot be one.
const std::string& host_of(const RankPlace& place) {
  const std::string& name = place.server;
  const bool is_host = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  });
  if (!is_host) {
    throw Error{ErrorKind::BadInput,
                "",
                {{"/topology/description/servers",
                  fmt::format("expected a host's name, of letters, digits, '.', '-' and '_', got "
                              "\"{}\"",
                              name)}}};
  }
  return name;
}

/// Returns the place of each rank; the ranks of a device of several GPUs are consecutive.
std::vector<RankPlace> places_by_rank(const ExportSubject& subject) {
  std::vector<RankPlace> places;
  for (const DeviceIndex device : devices_by_rank(subject.document.plan)) {
    for (std::size_t gpu = 0; gpu < gpus_of_device(subject.document); ++gpu) {
      places.push_back(place_of(subject, device, gpu));
    }
  }
  return places;
}

/// The ranks on a server.
struct ServerRanks {
  std::string server;
  std::size_t count = 0;
};

/// Returns how many ranks each server has, in the order in which launchers number servers.
std::vector<ServerRanks> ranks_by_server(const ExportSubject& subject) {
  std::vector<DeviceIndex> devices = devices_by_rank(subject.document.plan);
  std::sort(devices.begin(), devices.end());
  std::vector<ServerRanks> servers;
  for (const DeviceIndex device : devices) {
    for (std::size_t gpu = 0; gpu < gpus_of_device(subject.document); ++gpu) {
      std::string server = place_of(subject, device, gpu).server;
      if (servers.empty() || servers.back().server != server) {
        servers.push_back({.server = std::move(server)});
      }
      ++servers.back().count;
    }
  }
  return servers;
}

/// Returns "8 on node0 to node2, 4 on node3".
std::string counts_in_words(const std::vector<ServerRanks>& servers) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < servers.size(); begin = end) {
    while (end < servers.size() && servers[end].count == servers[begin].count) ++end;
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", servers[begin].count,
                        printable(servers[begin].server));
    if (end - begin > 1) text += " to " + printable(servers[end - 1].server);
  }
  return text;
}

}  // namespace

std::string launch_as_comment(const ExportSubject& subject, std::string_view environment,
                              std::string_view program) {
  const std::vector<ServerRanks> servers = ranks_by_server(subject);
  const bool are_equal = std::all_of(servers.begin(), servers.end(), [&](const ServerRanks& each) {
    return each.count == servers.front().count;
  });
  std::string text = fmt::format("# To start it on {}", printable(servers.front().server));
  std::string options;
  if (servers.size() > 1) {
    text += fmt::format(
        " and {} more, with the number of each from 0 in NODE_RANK and the address of {} in "
        "MASTER_ADDR{}",
        servers.size() - 1, printable(servers.front().server),
        are_equal ? std::string()
                  : fmt::format(", and in RANKS the number of its processes, {}",
                                counts_in_words(servers)));
    options = fmt::format("--nnodes {} --node-rank \"$NODE_RANK\" --master-addr \"$MASTER_ADDR\" ",
                          servers.size());
  }
  return fmt::format("{}:\n#   {}torchrun {}--nproc-per-node {} \\\n#     {}\n", text, environment,
                     options, are_equal ? fmt::format("{}", servers.front().count) : "\"$RANKS\"",
                     program);
}

/// Exports a rankfile of Open MPI with one slot per rank; slots are numbered within each server in
/// the order of ranks.
Export export_rankfile(const ExportSubject& subject) {
  const std::vector<RankPlace> places = places_by_rank(subject);
  std::map<std::string, int> slots;
  Export result;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const std::string& server = host_of(places[rank]);
    result.text += fmt::format("rank {}={} slot={}\n", rank, server, slots[server]++);
  }
  return result;
}

/// Exports a hostfile in which consecutive ranks of a server form one line; launchers fill the
/// lines from the first on.
Export export_hostfile(const ExportSubject& subject) {
  const std::vector<RankPlace> places = places_by_rank(subject);
  std::vector<std::pair<std::string, int>> lines;
  for (const RankPlace& place : places) {
    const std::string& server = host_of(place);
    if (lines.empty() || lines.back().first != server) lines.emplace_back(server, 0);
    ++lines.back().second;
  }
  Export result;
  std::map<std::string, int> seen;
  for (const auto& [server, count] : lines) {
    result.text += fmt::format("{} slots={}\n", server, count);
    if (++seen[server] == 2) {
      result.warnings.push_back(fmt::format(
          "{} stands in several lines, as ranks of other servers lie between its own: a launcher "
          "that adds them up needs the rankfile instead",
          server));
    }
  }
  return result;
}

/// Exports a shell script that sets CUDA_VISIBLE_DEVICES to the GPU of each rank.
Export export_visible_devices(const ExportSubject& subject) {
  const std::vector<RankPlace> places = places_by_rank(subject);
  Export result;
  result.text = fmt::format(
      "#!/bin/sh\n"
      "# {}: gives each process its GPU. Put it before the program:\n"
      "#   mpirun -np {} sh THIS_FILE python train.py\n"
      "rank=${{RANK:-${{OMPI_COMM_WORLD_RANK:-${{SLURM_PROCID:-}}}}}}\n"
      "case \"$rank\" in\n",
      title_of(subject), places.size());
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const Device& device = subject.topology.device(places[rank].device);
    result.text += fmt::format("  {}) CUDA_VISIBLE_DEVICES={} ;;  # {}\n", rank, places[rank].gpu,
                               printable(device.name));
  }
  result.text += fmt::format(
      "  *) echo \"expected a rank from 0 to {}, got '$rank'\" >&2; exit 2 ;;\n"
      "esac\n"
      "export CUDA_VISIBLE_DEVICES\n"
      "exec \"$@\"\n",
      places.size() - 1);
  return result;
}

/// Exports a shell script that gives each process its rank in the plan, since launchers number
/// processes server by server. Servers are listed in the order in which their first ranks occur:
/// rank 0 must be on the launcher's first server, as that is where rendezvous at rank 0 expects it.
Export export_ranks(const ExportSubject& subject) {
  const std::vector<RankPlace> places = places_by_rank(subject);
  std::vector<std::string> servers;
  std::map<std::string, std::map<std::size_t, std::size_t>> ranks;  // by server and GPU
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const RankPlace& place = places[rank];
    if (ranks.count(place.server) == 0) servers.push_back(place.server);
    ranks[place.server][place.gpu] = rank;
  }
  Export result;
  result.text = fmt::format(
      "#!/bin/sh\n"
      "# {}: gives each of {} processes the plan's rank and its server's GPUs.\n"
      "# Put it before the program, on servers in the order below:\n"
      "#   torchrun --no-python ... sh THIS_FILE python train.py\n"
      "#   deepspeed --no_python ... sh THIS_FILE python train.py\n"
      "case \"${{GROUP_RANK:-${{CROSS_RANK:-${{SLURM_NODEID:-0}}}}}}:${{LOCAL_RANK:-}}\" in\n",
      title_of(subject), places.size());
  for (std::size_t s = 0; s < servers.size(); ++s) {
    const std::map<std::size_t, std::size_t>& own = ranks.at(servers[s]);
    std::string gpus;
    for (const auto& [gpu, rank] : own) gpus += fmt::format("{}{}", gpus.empty() ? "" : ",", gpu);
    result.text +=
        fmt::format("  # server {}: {}, {} processes\n", s, printable(servers[s]), own.size());
    std::size_t local = 0;
    for (const auto& [gpu, rank] : own) {
      result.text +=
          fmt::format("  {}:{}) RANK={} CUDA_VISIBLE_DEVICES={} ;;\n", s, local++, rank, gpus);
    }
  }
  result.text += fmt::format(
      "  *) echo \"expected a process of one of {} servers that a launcher has given a LOCAL_RANK, "
      "got '${{LOCAL_RANK:-}}'\" >&2; exit 2 ;;\n"
      "esac\n"
      "WORLD_SIZE={}\n"
      "export RANK CUDA_VISIBLE_DEVICES WORLD_SIZE\n"
      "exec \"$@\"\n",
      servers.size(), places.size());
  return result;
}

}  // namespace dapple::interop
