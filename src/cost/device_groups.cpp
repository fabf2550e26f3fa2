#include "dapple/cost/device_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cost/groups_by_kind.h"
#include "dapple/core/error.h"
#include "dapple/cost/buckets.h"
#include "dapple/cost/compatible.h"
#include "dapple/cost/larger_groups.h"
#include "dapple/profile/limits.h"
#include "dapple/profile/variants.h"

namespace dapple {
namespace {

std::size_t to_position(std::int32_t number) {
  return static_cast<std::size_t>(number);
}

/// A part of a bandwidth; none is less than a byte per second.
Bandwidth part_of(Bandwidth whole, std::int64_t parts) {
  return {std::max<std::int64_t>(1, whole.bytes_per_second / parts)};
}

/// The NICs of one group, each with the number of the group's devices that use it.
using GroupNics = std::map<std::int32_t, std::int64_t>;

/// Forms the groups of one kind of server.
class ServerGrouping {
 public:
  ServerGrouping(const Topology& topology, std::size_t group, const Parallelism& parallelism)
      : topology_(topology),
        servers_(topology.description().servers[group]),
        first_server_(first_server_of(topology, group)),
        parallelism_(parallelism),
        size_(parallelism.group_size()),
        size_in_server_(std::min<std::int64_t>(size_, servers_.devices)),
        place_(fmt::format("/servers/{}", group)) {}

  std::variant<ServerGroup, NoGroups> run();
  GroupShape shape() const;

 private:
  static ServerIndex first_server_of(const Topology& topology, std::size_t group) {
    for (std::int32_t s = 0; s < topology.server_count(); ++s) {
      if (to_position(topology.server(ServerIndex{s}).group) == group) return ServerIndex{s};
    }
    throw Bug("a kind of server has no server");
  }
  std::optional<NoGroups> fault() const;
  NoGroups refuse(const char* key, std::string reason) const {
    return {place_ + key, std::move(reason)};
  }
  std::int32_t groups() const {
    return servers_.devices / static_cast<std::int32_t>(size_in_server_);
  }
  bool spans_servers() const { return size_ > size_in_server_; }
  GroupRing ring(std::int64_t members, std::int64_t stride) const;
  GroupRing ring_between_servers(std::int64_t members, std::int64_t stride) const;
  std::vector<GroupNics> nics_of_groups() const;
  std::optional<NoGroups> group_nics(ServerGroup& grouped);
  Nic merged(const GroupNics& nics) const;
  std::optional<NoGroups> group_roots(ServerGroup& grouped) const;

  const Topology& topology_;
  const ServerGroup& servers_;
  ServerIndex first_server_;
  Parallelism parallelism_;
  // The devices of a group, and those of them in one server.
  std::int64_t size_;
  std::int64_t size_in_server_;
  std::string place_;
  // By NIC: its position among those of the grouped server, -1 if no device uses it.
  std::vector<std::int32_t> new_nics_;
};

std::optional<NoGroups> ServerGrouping::fault() const {
  const Parallelism& form = parallelism_;
  for (const std::int64_t size : {form.tensor, form.expert_tensor, form.tensor * form.context,
                                  form.experts * form.expert_tensor, size_}) {
    if (servers_.devices % size == 0 || size % servers_.devices == 0) continue;
    if (size < servers_.devices) {
      return refuse("/devices", fmt::format("groups of {} devices need a multiple of that in each "
                                            "server, and {} has {}",
                                            size, servers_.name, servers_.devices));
    }
    return refuse("/devices", fmt::format("groups of {} devices need a part of a server or whole "
                                          "ones, and {} has {}",
                                          size, servers_.name, servers_.devices));
  }
  if (servers_.count % (size_ / size_in_server_) != 0) {
    return refuse("/count",
                  fmt::format("groups of {} servers need a multiple of that, and there {} {} {}",
                              size_ / size_in_server_, servers_.count == 1 ? "is" : "are",
                              servers_.count, servers_.name));
  }
  if (spans_servers() && (servers_.nics.empty() || !servers_.pcie_roots.empty())) {
    return refuse(
        servers_.nics.empty() ? "/nics" : "/pcie_roots",
        fmt::format("groups of several servers need NICs and no PCIe roots, and {} has {}",
                    servers_.name, servers_.nics.empty() ? "no NICs" : "PCIe roots"));
  }
  if (servers_.links.kind == ServerLinks::Kind::Matrix) {
    return refuse("/links", fmt::format("groups of devices need a switch within the server, and {} "
                                        "has a link matrix",
                                        servers_.name));
  }
  return std::nullopt;
}

/// Returns the ring over every `stride`-th of a group's devices.
GroupRing ServerGrouping::ring(std::int64_t members, std::int64_t stride) const {
  if (members == 1) return {};
  if (members * stride > servers_.devices) return ring_between_servers(members, stride);
  GroupRing ring{.members = members,
                 .bandwidth = servers_.links.port.bandwidth,
                 .latency = servers_.links.port.latency,
                 .members_in_server = members,
                 .within_server = servers_.links.port.bandwidth};
  for (const BusBandwidthTable& table : servers_.bus_bandwidth) {
    if (table.servers != 1 || table.devices != members) continue;
    for (const BusBandwidthTable::Point& point : table.points) {
      ring.measured.push_back({point.size, reduction_time(table, point)});
    }
  }
  return ring;
}

/// Returns such a ring over devices of several servers, of which all rings of the group share the
/// NICs.
GroupRing ServerGrouping::ring_between_servers(std::int64_t members, std::int64_t stride) const {
  const std::int64_t rings_in_server = std::min<std::int64_t>(stride, servers_.devices);
  const Bandwidth together = topology_.nics_together(first_server_);
  Duration latency;
  const Server& server = topology_.server(first_server_);
  for (std::int32_t number = 0; number < server.device_count; ++number) {
    const DeviceIndex here{server.first_device.value + number};
    const DeviceIndex next{here.value + server.device_count};
    latency = std::max(latency, topology_.route(here, next).latency);
  }
  GroupRing ring{.members = members,
                 .bandwidth = part_of(together, rings_in_server),
                 .latency = latency,
                 .members_in_server = servers_.devices / rings_in_server,
                 .within_server = {kMaxCount},
                 .between_servers = part_of(together, servers_.devices)};
  if (servers_.devices == 1) return ring;
  ring.within_server = servers_.links.port.bandwidth;
  ring.bandwidth = std::min(ring.bandwidth, ring.within_server);
  return ring;
}

GroupShape ServerGrouping::shape() const {
  const Parallelism& form = parallelism_;
  const std::int64_t of_expert = form.experts > 1 ? form.experts * form.expert_tensor : form.tensor;
  GroupShape shape;
  shape.rings = {ring(form.tensor, 1), ring(form.context, form.tensor),
                 ring(form.experts, form.expert_tensor), ring(form.expert_tensor, 1)};
  shape.copies = ring(form.copies(), form.tensor);
  shape.expert_copies = ring(form.expert_copies(), of_expert);
  shape.replicas = form.replicas_in_group();
  shape.shards_all_state = form.full_shards > 1;
  shape.shards_optimizer = form.optimizer_shards > 0;
  return shape;
}

std::vector<GroupNics> ServerGrouping::nics_of_groups() const {
  std::vector<GroupNics> nics(static_cast<std::size_t>(groups()));
  const std::int32_t first = topology_.server(first_server_).first_device.value;
  for (std::int32_t number = 0; number < servers_.devices; ++number) {
    ++nics[static_cast<std::size_t>(number / size_in_server_)]
          [topology_.nic_of(DeviceIndex{first + number})];
  }
  return nics;
}

/// Returns the NICs of one group as one, of which each device has an equal part.
Nic ServerGrouping::merged(const GroupNics& nics) const {
  Nic whole;
  whole.link.bandwidth = {kMaxCount};
  for (const auto& [nic, users] : nics) {
    const Link link = topology_.nic_link(first_server_, nic);
    whole.link.bandwidth = std::min(whole.link.bandwidth, part_of(link.bandwidth, users));
    whole.link.latency = std::max(whole.link.latency, servers_.nics[to_position(nic)].link.latency);
  }
  return whole;
}

/// Sets the NICs of the grouped server.
std::optional<NoGroups> ServerGrouping::group_nics(ServerGroup& grouped) {
  grouped.nics.clear();
  new_nics_.assign(servers_.nics.size(), -1);
  if (servers_.nics.empty()) return std::nullopt;
  const std::vector<GroupNics> of_groups = nics_of_groups();
  for (std::size_t g = 0; g < of_groups.size(); ++g) {
    std::int32_t position = new_nics_[to_position(of_groups[g].begin()->first)];
    for (const auto& [nic, users] : of_groups[g]) {
      const bool is_taken = new_nics_[to_position(nic)] >= 0;
      if (is_taken && of_groups[g].size() > 1) {
        return refuse("/nics", fmt::format("a group of {} devices in {} has several NICs, of which "
                                           "another group uses one",
                                           size_, servers_.name));
      }
    }
    if (position < 0) {
      position = static_cast<std::int32_t>(grouped.nics.size());
      grouped.nics.push_back(merged(of_groups[g]));
    }
    for (const auto& [nic, users] : of_groups[g]) new_nics_[to_position(nic)] = position;
    grouped.nics[to_position(position)].devices.push_back(static_cast<std::int32_t>(g));
  }
  return std::nullopt;
}

/// Sets the PCIe roots of the grouped server.
std::optional<NoGroups> ServerGrouping::group_roots(ServerGroup& grouped) const {
  for (PcieRoot& root : grouped.pcie_roots) {
    root.link.bandwidth = part_of(root.link.bandwidth, size_);
    std::map<std::int32_t, std::int64_t> members;
    for (const std::int32_t device : root.devices) {
      ++members[static_cast<std::int32_t>(device / size_)];
    }
    root.devices.clear();
    for (const auto& [group, count] : members) {
      if (count != size_) {
        return refuse("/pcie_roots", fmt::format("the devices of a group of {} in {} are below "
                                                 "different PCIe roots",
                                                 size_, servers_.name));
      }
      root.devices.push_back(group);
    }
    std::set<std::int32_t> nics;
    for (const std::int32_t nic : root.nics) {
      if (new_nics_[to_position(nic)] >= 0) nics.insert(new_nics_[to_position(nic)]);
    }
    root.nics.assign(nics.begin(), nics.end());
  }
  std::set<std::int32_t> seen;
  for (const PcieRoot& root : grouped.pcie_roots) {
    for (const std::int32_t nic : root.nics) {
      if (seen.insert(nic).second) continue;
      return refuse("/pcie_roots",
                    fmt::format("the NICs of a group of {} in {} are below different "
                                "PCIe roots",
                                size_, servers_.name));
    }
  }
  return std::nullopt;
}

std::variant<ServerGroup, NoGroups> ServerGrouping::run() {
  if (auto none = fault()) return *std::move(none);
  ServerGroup grouped = servers_;
  grouped.devices = groups();
  grouped.count = static_cast<std::int32_t>(servers_.count / (size_ / size_in_server_));
  grouped.bus_bandwidth.clear();
  if (auto none = group_nics(grouped)) return *std::move(none);
  if (auto none = group_roots(grouped)) return *std::move(none);
  return grouped;
}

/// Returns the uplinks with the part of their bandwidth that each device of a group has, where
/// `bandwidth_of` is the bandwidth of the uplink of a number.
template <class BandwidthOf>
std::vector<UplinkGroup> divided_uplinks(const std::vector<UplinkGroup>& groups, std::int64_t size,
                                         BandwidthOf bandwidth_of) {
  std::vector<UplinkGroup> divided;
  std::int32_t first = 0;
  for (const UplinkGroup& group : groups) {
    // Uplinks of which only the oversubscription is stated may differ, as their members may.
    const std::int32_t alike = group.bandwidth ? group.count : 1;
    for (std::int32_t i = 0; i < group.count; i += alike) {
      UplinkGroup& part = divided.emplace_back(group);
      part.count = alike;
      part.bandwidth = part_of(bandwidth_of(first + i), size);
    }
    first += group.count;
  }
  return divided;
}

/// Returns the racks whose members are groups of `servers` servers, or where they are not.
std::variant<std::vector<UplinkGroup>, NoGroups> racks_of_groups(std::vector<UplinkGroup> racks,
                                                                 std::int64_t servers) {
  for (std::size_t r = 0; r < racks.size(); ++r) {
    if (racks[r].members % servers != 0) {
      return NoGroups{fmt::format("/racks/{}/servers", r),
                      fmt::format("groups of {} servers need a multiple of that in each rack, and "
                                  "one has {}",
                                  servers, racks[r].members)};
    }
    racks[r].members = static_cast<std::int32_t>(racks[r].members / servers);
  }
  return racks;
}

/// Adds the shape of the groups of some servers, or returns why it does not suit the others.
std::optional<NoGroups> add_shape(const TopologyDescription& whole, std::size_t servers,
                                  const GroupShape& shape,
                                  std::map<std::string, GroupShape>& shapes) {
  const ServerGroup& own = whole.servers[servers];
  const auto [of_kind, is_new] = shapes.try_emplace(own.device, shape);
  if (of_kind->second == shape) return std::nullopt;
  const auto first =
      std::find_if(whole.servers.begin(), whole.servers.end(),
                   [&](const ServerGroup& some) { return some.device == own.device; });
  return NoGroups{fmt::format("/servers/{}/links", servers),
                  fmt::format("groups of devices of one kind need the same links within every "
                              "server, and those of {} are not those of {}",
                              own.name, first->name)};
}

/// Whether all kinds have the same groups.
bool are_alike(const std::map<std::string, GroupShape>& shapes) {
  return std::all_of(shapes.begin(), shapes.end(),
                     [&](const auto& some) { return some.second == shapes.begin()->second; });
}

/// Returns the ranks that these are, with their number first: "4 context-parallel ranks".
std::string ranks_text(const GroupRing& ring, CollectiveMembers members) {
  const bool are_experts = members == CollectiveMembers::Experts;
  return fmt::format("{} {}-parallel ranks", ring.members,
                     are_experts ? "expert" : std::string(to_string(members)));
}

/// Returns why ranks on several servers cannot share layers: some layer has no figure for their
/// collectives; nothing if all have.
std::optional<NoGroups> fault_of_figures(const ModelProfile& profile,
                                         const Parallelism& parallelism,
                                         const GroupedTopology& grouped) {
  for (const CollectiveMembers members : kCollectiveMembers) {
    for (const auto& [kind, shape] : grouped.shapes) {
      const GroupRing& ring = shape.ring(members);
      if (!ring.passes_servers()) continue;
      const std::string layer = layer_without_collectives(profile, parallelism, members);
      if (layer.empty()) continue;
      return NoGroups{
          "/layers",
          fmt::format("the variant of layer {} states no collectives over {}, which would be on {} "
                      "servers, so that its times may contain those within one server; it needs "
                      "forward_collectives or backward_collectives over them, of 0 bytes where "
                      "there are none",
                      layer, ranks_text(ring, members), ring.members / ring.members_in_server)};
    }
  }
  return std::nullopt;
}

/// Returns the inputs seen by one device of each group.
std::variant<PlanInputs, NoGroups> inputs_of_groups(const ModelProfile& profile,
                                                    const Parallelism& parallelism,
                                                    GroupedTopology grouped) {
  const GroupShape& first = grouped.shapes.begin()->second;
  PlanInputs inputs{with_parallelism(profile, parallelism, first), std::move(grouped.description)};
  if (are_alike(grouped.shapes)) return inputs;
  set_groups_by_kind(grouped.shapes, inputs.profile, inputs.topology);
  std::set<std::size_t> measured;
  for (const DeviceKind& kind : inputs.topology.devices) {
    const auto source = time_source(inputs.profile, kind);
    if (source && grouped.shapes.count(kind.name) > 0) measured.insert(source->measured);
  }
  if (measured.size() <= kMaxMeasuredKindsInUse) return inputs;
  return NoGroups{"/devices",
                  fmt::format("{} kinds with times or links of their own, of at most {}",
                              measured.size(), kMaxMeasuredKindsInUse)};
}

/// Returns why no plan can have stages in both forms, whatever the links.
std::string fault_of_profiles(const ModelProfile& one, const ModelProfile& other) {
  if (one.parallelism == other.parallelism) return "another one is the same";
  const std::int64_t one_size = one.parallelism.group_size();
  const std::int64_t other_size = other.parallelism.group_size();
  if (one_size % other_size != 0 && other_size % one_size != 0) {
    return fmt::format(
        "its groups are of size {}, and those of {} of size {}, of which neither "
        "divides the other",
        other_size, to_text(one.parallelism), one_size);
  }
  if (one_size != other_size && !one.ties.empty()) {
    return fmt::format(
        "its groups are of size {}, and those of {} of size {}, which layers that "
        "share parameters do not allow",
        other_size, to_text(one.parallelism), one_size);
  }
  if (one.parallelism.shards_optimizer != other.parallelism.shards_optimizer) {
    return "the optimizer's state is sharded in all stages or in none";
  }
  if (one.parallelism.shards_over_replicas() != other.parallelism.shards_over_replicas()) {
    return "the optimizer's state is sharded over the replicas of all stages or of none";
  }
  for (const Tie& tie : one.ties) {
    const Layer& layer = one.layers[tie.owner.position()];
    const bool is_alike =
        layer.parameters == other.layers[tie.owner.position()].parameters &&
        reduced_parameters(one, tie.owner) == reduced_parameters(other, tie.owner);
    if (is_alike) continue;
    return fmt::format("devices hold other parts of the parameters of {}, which are tied",
                       layer.name);
  }
  return "";
}

/// Returns why stages cannot keep all in some layers and recompute in others; empty if they can:
/// the layers must have the same parameters and outputs both ways.
std::string fault_of_recomputing(const PlanInputs& kept, const PlanInputs& recomputing) {
  for (std::size_t l = 0; l < kept.profile.layers.size(); ++l) {
    const Layer& one = kept.profile.layers[l];
    const Layer& other = recomputing.profile.layers[l];
    const Measurement& largest = one.measurements.back();
    const Measurement& recomputed = other.measurements.back();
    if (one.parameters == other.parameters && one.expert_parameters == other.expert_parameters &&
        Wide{largest.output.count} * recomputed.batch_size ==
            Wide{recomputed.output.count} * largest.batch_size) {
      continue;
    }
    return fmt::format("layer {} has other parameters or another output where it recomputes",
                       one.name);
  }
  return mixing_fault(kept, recomputing);
}

/// Returns the inputs of a form in which only some layers of every stage recompute: those of the
/// form that keeps all, with the layers of the form in which all recompute beside them.
std::variant<PlanInputs, NoGroups> inputs_of_some_layers(const ModelProfile& profile,
                                                         const Topology& topology,
                                                         const Parallelism& parallelism) {
  Parallelism in_all = parallelism;
  in_all.recomputed_layers = {};
  auto kept = group_inputs(profile, topology, without_recomputation(parallelism));
  auto* inputs = std::get_if<PlanInputs>(&kept);
  if (inputs == nullptr) return kept;
  auto recomputed = group_inputs(profile, topology, in_all);
  auto* recomputing = std::get_if<PlanInputs>(&recomputed);
  if (recomputing == nullptr) return recomputed;
  if (const std::string fault = fault_of_recomputing(*inputs, *recomputing); !fault.empty()) {
    return NoGroups{"/layers", fault};
  }
  inputs->profile.parallelism = parallelism;
  inputs->profile.recomputing.push_back(std::move(recomputing->profile));
  return kept;
}

}  // namespace

std::variant<GroupedTopology, NoGroups> group_devices(const Topology& topology,
                                                      const Parallelism& parallelism) {
  const std::int64_t size = parallelism.group_size();
  const TopologyDescription& whole = topology.description();
  GroupedTopology grouped{.description = whole, .shapes = {}};
  grouped.description.group_size = size;
  std::int64_t servers_of_group = 1;
  for (std::size_t g = 0; g < whole.servers.size(); ++g) {
    ServerGrouping grouping(topology, g, parallelism);
    auto servers = grouping.run();
    if (auto* none = std::get_if<NoGroups>(&servers)) return std::move(*none);
    grouped.description.servers[g] = std::get<ServerGroup>(std::move(servers));
    const std::int64_t of_these = divide_up(size, whole.servers[g].devices);
    if (g == 0) servers_of_group = of_these;
    if (of_these != servers_of_group) {
      return NoGroups{
          fmt::format("/servers/{}/devices", g),
          fmt::format("groups of several servers need as many of each kind, and those "
                      "of {} are of {} servers, where those of {} are of {}",
                      whole.servers[g].name, of_these, whole.servers[0].name, servers_of_group)};
    }
    if (auto none = add_shape(whole, g, grouping.shape(), grouped.shapes)) return *std::move(none);
  }
  grouped.description.servers_of_group = servers_of_group;
  auto racks = racks_of_groups(
      divided_uplinks(whole.racks, size,
                      [&](std::int32_t rack) { return topology.rack_bandwidth(rack); }),
      servers_of_group);
  if (auto* none = std::get_if<NoGroups>(&racks)) return std::move(*none);
  grouped.description.racks = std::get<std::vector<UplinkGroup>>(std::move(racks));
  grouped.description.pods = divided_uplinks(
      whole.pods, size, [&](std::int32_t pod) { return topology.pod_bandwidth(pod); });
  return grouped;
}

std::variant<PlanInputs, NoGroups> group_inputs(const ModelProfile& profile,
                                                const Topology& topology,
                                                const Parallelism& parallelism) {
  if (parallelism.is_none()) return PlanInputs{profile, topology.description()};
  if (!parallelism.recomputed_layers.is_all()) {
    return inputs_of_some_layers(profile, topology, parallelism);
  }
  const std::string missing = layer_without(profile, parallelism);
  if (!missing.empty()) {
    return NoGroups{"/layers",
                    fmt::format("layer {} has no variant for {}", missing, to_text(parallelism))};
  }
  GroupedTopology found{.description = topology.description(),
                        .shapes = {{profile.device, GroupShape{}}}};
  if (parallelism.group_size() > 1) {
    auto grouped = group_devices(topology, parallelism);
    if (auto* none = std::get_if<NoGroups>(&grouped)) return std::move(*none);
    found = std::get<GroupedTopology>(std::move(grouped));
  }
  if (auto none = fault_of_figures(profile, parallelism, found)) return *std::move(none);
  found.description.shards_optimizer = parallelism.shards_over_replicas();
  return inputs_of_groups(profile, parallelism, std::move(found));
}

namespace {

/// Returns why stages cannot be in groups of the size of the second inputs beside those of the
/// first.
std::string fault_of_sizes(const PlanInputs& one, const PlanInputs& other) {
  const std::int64_t size = one.profile.parallelism.group_size();
  const std::int64_t other_size = other.profile.parallelism.group_size();
  if (size == other_size) return "";
  if (other_size < size) {
    return fmt::format(
        "its groups are of size {}, and those of {} of size {}, which has to be the smallest",
        other_size, to_text(one.profile.parallelism), size);
  }
  return LargerGroups::fault(Topology{one.topology}, other_size / size);
}

}  // namespace

std::string mixing_fault(const PlanInputs& one, const PlanInputs& other) {
  std::string fault = fault_of_profiles(one.profile, other.profile);
  if (fault.empty()) fault = fault_of_sizes(one, other);
  if (!fault.empty()) return fault;
  const std::vector<DeviceKind>& kinds = one.topology.devices;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const DeviceKind& same_kind = other.topology.devices[k];
    if (time_source(one.profile, kinds[k]) == time_source(other.profile, same_kind)) continue;
    return fmt::format("its collectives tell {} from other kinds by its links, or those of {} do",
                       same_kind.name, to_text(one.profile.parallelism));
  }
  return "";
}

std::variant<PlanInputs, NoGroups> group_inputs(const ModelProfile& profile,
                                                const Topology& topology,
                                                const Parallelism& parallelism,
                                                const std::vector<Parallelism>& stage_forms) {
  auto grouped = group_inputs(profile, topology, parallelism);
  auto* inputs = std::get_if<PlanInputs>(&grouped);
  if (inputs == nullptr) return grouped;
  constexpr std::size_t kMostLayers = 2'000'000;  // some GiB
  if ((stage_forms.size() + 1) * profile.layers.size() > kMostLayers) {
    return NoGroups{"/stage_forms", fmt::format("{} forms of {} layers", stage_forms.size() + 1,
                                                profile.layers.size())};
  }
  std::vector<ModelProfile>& forms = inputs->profile.stage_forms;
  for (const Parallelism& form : stage_forms) {
    auto found = group_inputs(profile, topology, form);
    auto* other = std::get_if<PlanInputs>(&found);
    const std::string place = fmt::format("/stage_forms/{}", forms.size());
    if (other == nullptr) {
      return NoGroups{place,
                      fmt::format("{}: {}", to_text(form), std::get<NoGroups>(found).reason)};
    }
    std::string fault = mixing_fault(*inputs, *other);
    for (const ModelProfile& before : forms) {
      if (fault.empty()) fault = fault_of_profiles(before, other->profile);
    }
    if (!fault.empty()) return NoGroups{place, fmt::format("{}: {}", to_text(form), fault)};
    forms.push_back(std::move(other->profile));
  }
  return grouped;
}

}  // namespace dapple
