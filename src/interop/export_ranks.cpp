// Which process runs where: for launchers, so that a placement survives them.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "dapple/core/error.h"
#include "exporting.h"

namespace dapple {
namespace {

/// Of the device's server, which launchers take as a host's.
const std::string& host_of(const ExportSubject& subject, DeviceIndex device) {
  const std::string& name = subject.topology.server(subject.topology.device(device).server).name;
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

}  // namespace

/// A process a slot, numbered within its server in the order of ranks.
Export export_rankfile(const ExportSubject& subject) {
  const std::vector<DeviceIndex> devices = devices_by_rank(subject.document.plan);
  std::map<std::string, int> slots;
  Export result;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const std::string& server = host_of(subject, devices[rank]);
    result.text += fmt::format("rank {}={} slot={}\n", rank, server, slots[server]++);
  }
  return result;
}

/// Neighbouring ranks of a server are one line; launchers fill lines from the first on.
Export export_hostfile(const ExportSubject& subject) {
  const std::vector<DeviceIndex> devices = devices_by_rank(subject.document.plan);
  std::vector<std::pair<std::string, int>> lines;
  for (const DeviceIndex device : devices) {
    const std::string& server = host_of(subject, device);
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

Export export_visible_devices(const ExportSubject& subject) {
  const std::vector<DeviceIndex> devices = devices_by_rank(subject.document.plan);
  Export result;
  result.text = fmt::format(
      "#!/bin/sh\n"
      "# {}: gives each process its GPU. Put it before the program:\n"
      "#   mpirun -np {} sh THIS_FILE python train.py\n"
      "rank=${{RANK:-${{OMPI_COMM_WORLD_RANK:-${{SLURM_PROCID:-}}}}}}\n"
      "case \"$rank\" in\n",
      title_of(subject), devices.size());
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const Device& device = subject.topology.device(devices[rank]);
    result.text += fmt::format("  {}) CUDA_VISIBLE_DEVICES={} ;;  # {}\n", rank, device.number,
                               printable(device.name));
  }
  result.text += fmt::format(
      "  *) echo \"expected a rank from 0 to {}, got '$rank'\" >&2; exit 2 ;;\n"
      "esac\n"
      "export CUDA_VISIBLE_DEVICES\n"
      "exec \"$@\"\n",
      devices.size() - 1);
  return result;
}

}  // namespace dapple
