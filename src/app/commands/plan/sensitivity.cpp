#include "app/commands/plan/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/plan.h"
#include "dapple/report/table.h"

namespace dapple::app {
namespace {

std::int64_t at_most_largest(Wide count) {
  return static_cast<std::int64_t>(std::min<Wide>(count, kMaxCount));
}

void double_bandwidth(Bandwidth& bandwidth) {
  bandwidth = {at_most_largest(2 * Wide{bandwidth.bytes_per_second})};
}

TopologyDescription with_faster_network(TopologyDescription topology) {
  if (topology.network) double_bandwidth(topology.network->bandwidth);
  for (ServerGroup& group : topology.servers) {
    for (Nic& nic : group.nics) double_bandwidth(nic.link.bandwidth);
    for (BusBandwidthTable& table : group.bus_bandwidth) {
      if (table.servers == 1) continue;
      for (BusBandwidthTable::Point& point : table.points) double_bandwidth(point.bandwidth);
    }
  }
  for (std::vector<UplinkGroup>* const uplinks : {&topology.racks, &topology.pods}) {
    for (UplinkGroup& uplink : *uplinks) {
      if (uplink.bandwidth) double_bandwidth(*uplink.bandwidth);
    }
  }
  return topology;
}

/// Returns the topology with memory times `numerator / denominator` on every device.
TopologyDescription with_memory(TopologyDescription topology, std::int64_t numerator,
                                std::int64_t denominator) {
  for (DeviceKind& kind : topology.devices) {
    kind.memory = {at_most_largest(Wide{kind.memory.count} * numerator / denominator)};
  }
  return topology;
}

/// Returns the topology with one more server; nothing if no file may describe such a topology.
std::optional<TopologyDescription> with_one_server_more(TopologyDescription topology) {
  ++topology.servers.back().count;
  try {
    return io::read_topology(io::write_topology(topology), topology.name);
  } catch (const Error&) { return std::nullopt; }
}

}  // namespace

std::vector<ChangedInputs> changed_topologies(const ModelProfile& profile,
                                              const TopologyDescription& topology) {
  std::vector<ChangedInputs> changes;
  if (server_count(topology) > 1) {
    changes.push_back(
        {"links between servers twice as fast", profile, with_faster_network(topology)});
  }
  changes.push_back({"a quarter more memory", profile, with_memory(topology, 5, 4)});
  if (std::optional<TopologyDescription> grown = with_one_server_more(topology)) {
    changes.push_back({"one more server", profile, *std::move(grown)});
  }
  return changes;
}

std::vector<ChangedInputs> changes_for_memory(const ModelProfile& profile,
                                              const TopologyDescription& topology,
                                              Sharding sharding) {
  std::vector<ChangedInputs> changes{{"twice the memory", profile, with_memory(topology, 2, 1)}};
  if (sharding == Sharding::None) {
    changes.push_back({"--shard optimizer", profile, topology, Sharding::Optimizer});
  }
  if (sharding == Sharding::None || sharding == Sharding::Optimizer) {
    changes.push_back({"--shard full", profile, topology, Sharding::Full});
  }
  return changes;
}

std::string sensitivity_text(const std::vector<Sensitivity>& found,
                             std::optional<Duration> iteration, const report::TextStyle& style) {
  if (found.empty()) return {};
  report::Table table{{{"with", report::Align::Left, 20},
                       {"iteration", report::Align::Right},
                       {"is"},
                       {"stages", report::Align::Left, 12}}};
  for (const Sensitivity& one : found) {
    const bool fits = one.iteration.has_value();
    std::string is = "no plan fits";
    if (one.is_impossible) {
      is = one.why_impossible.empty() ? "impossible" : "impossible: " + one.why_impossible;
    }
    if (one.was_stopped && !fits) is = "none found";
    if (fits && !iteration) is = "fits";
    if (fits && iteration) {
      const double change =
          100 * (static_cast<double>(one.iteration->ns) / static_cast<double>(iteration->ns) - 1);
      constexpr double kShown = 0.05;  // what does not round to 0.0 %
      is = change <= -kShown ? fmt::format("{:.1f} % faster", -change) : "no faster";
    }
    if (one.was_stopped) is += ", stopped";
    table.add_row({{one.words},
                   {fits ? report::show(*one.iteration) : "-"},
                   {is, fits ? report::Ink::Plain : report::Ink::Bad},
                   {fits ? one.shape : "-"}});
  }
  return table.text(0, style) + '\n';
}

}  // namespace dapple::app
