#include "dapple/cost/compatible.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "dapple/cost/buckets.h"
#include "dapple/plan/validate.h"
#include "dapple/profile/boundary_shares.h"
#include "dapple/profile/limits.h"
#include "dapple/profile/variants.h"
#include "dapple/topology/servers_of_kind.h"

namespace dapple {
namespace {

/// The largest iteration time allowed; in ticks it leaves three bits of 63 to spare.
constexpr double kLongestIterationNs = 1e15;
constexpr double kLargestMemory = 1e18;

/// Upper bounds over all plans of a problem, in floating point, as only their magnitude matters.
struct Magnitudes {
  double compute_ns = 0;
  double communication_ns = 0;
  double bytes = 0;
};

double in_units(Factor factor) {
  return static_cast<double>(factor.billionths) / static_cast<double>(kOne.billionths);
}

double slowest_scale(const ModelProfile& profile, const Topology& topology) {
  double slowest = 1;
  for (const DeviceKind& kind : topology.description().devices) {
    slowest = std::max(slowest, in_units(time_source(profile, kind).value_or(kOne).scale));
  }
  return slowest;
}

Bandwidth slowest_bandwidth(const Topology& topology) {
  Bandwidth slowest{INT64_MAX};
  for (const Port& port : topology.ports()) slowest = std::min(slowest, port.bandwidth);
  return slowest;
}

Duration slowest_latency(const TopologyDescription& topology) {
  Duration slowest;
  Duration network = topology.network ? topology.network->latency : Duration{};
  for (const std::vector<UplinkGroup>* groups : {&topology.racks, &topology.pods}) {
    Duration uplink;
    for (const UplinkGroup& group : *groups) uplink = std::max(uplink, group.latency);
    network += 2 * uplink;
  }
  for (const ServerGroup& group : topology.servers) {
    Duration roots;
    for (const PcieRoot& root : group.pcie_roots) roots = std::max(roots, 2 * root.link.latency);
    slowest = std::max(slowest, group.links.port.latency);
    if (group.links.host_path) slowest = std::max(slowest, group.links.host_path->latency + roots);
    for (const LinkKind& kind : group.links.kinds) slowest = std::max(slowest, kind.link.latency);
    for (const Nic& nic : group.nics) {
      slowest = std::max(slowest, 2 * (roots + nic.link.latency) + network);
    }
  }
  return slowest;
}

/// Returns an upper bound on the number of hops of a ring that pass the same port: only hops
/// between PCIe roots of one server can have a port in common.
double most_hops_through_a_port(const TopologyDescription& topology) {
  std::int32_t most = 1;
  for (const ServerGroup& group : topology.servers) {
    if (!group.pcie_roots.empty()) most = std::max(most, group.devices);
  }
  return most;
}

/// Returns an upper bound, from the measured tables, on the time of `messages` all-reduces of
/// `bytes` bytes in total: each takes no longer than the largest measured one plus its size at that
/// one's bandwidth.
double slowest_reductions_ns(const TopologyDescription& topology, double messages, double bytes) {
  double slowest = 0;
  for (const ServerGroup& group : topology.servers) {
    for (const BusBandwidthTable& table : group.bus_bandwidth) {
      const BusBandwidthTable::Point& last = table.points.back();
      const auto time = static_cast<double>(reduction_time(table, last).ns);
      slowest = std::max(slowest, time * (messages + bytes / static_cast<double>(last.size.count)));
    }
  }
  return slowest;
}

/// Sums over all layers for the whole batch; times are as measured and include recomputation.
struct LayerSums {
  double time_ns = 0;
  double output_bytes = 0;
  double kept_bytes = 0;
  double parameter_bytes = 0;
};

/// Returns an upper bound on the time of a collective over a ring.
double slowest_collective_ns(double bytes, const GroupRing& ring) {
  const std::int64_t narrowest =
      std::min({ring.bandwidth.bytes_per_second, ring.within_server.bytes_per_second,
                ring.between_servers.bytes_per_second});
  double time = 2 * (static_cast<double>(ring.latency.ns) * static_cast<double>(ring.members) +
                     bytes * 1e9 / static_cast<double>(narrowest)) +
                2;
  for (const MeasuredReduction& measured : ring.measured) {
    time = std::max(time, static_cast<double>(measured.time.ns) *
                              (1 + bytes / static_cast<double>(measured.size.count)));
  }
  return time;
}

/// Returns an upper bound on the time of all collectives of a layer for the whole batch, those of
/// the forward twice, as it may be run again.
double collectives_ns(const Layer& layer, const GroupShape& group, double global_batch) {
  double sum = 0;
  for (const auto* list :
       {&layer.forward_collectives, &layer.forward_collectives, &layer.backward_collectives}) {
    for (const Collective& collective : *list) {
      const double bytes = static_cast<double>(collective.size_per_sample.count);
      sum += static_cast<double>(collective.count) *
             slowest_collective_ns(bytes, group.ring(collective.over)) * global_batch;
    }
  }
  return sum;
}

/// Returns an upper bound on the time that a layer computes for the whole batch on a kind of device
/// that was measured.
double measured_ns(const ModelProfile& profile, const Layer& layer, std::size_t kind,
                   double global_batch) {
  const std::vector<Measurement>& measurements = measurements_on(layer, kind);
  const bool proportional =
      measurements.size() == 1 && profile.batch_scaling == BatchScaling::Proportional;
  const double overhead = 3.0 * static_cast<double>(fixed_overhead_on(layer, kind).ns);
  double sum = 0;
  for (const Measurement& point : measurements) {
    const double time =
        2.0 * static_cast<double>(point.forward.ns) + static_cast<double>(point.backward.ns);
    const double batches =
        proportional ? global_batch / static_cast<double>(point.batch_size) : global_batch;
    sum += time * batches + (overhead + 3) * global_batch;
  }
  return sum;
}

LayerSums sum_layers(const ModelProfile& profile, double global_batch) {
  LayerSums sums;
  for (const Layer& layer : profile.layers) {
    double longest = 0;
    for (std::size_t kind = 0; kind <= profile.other_devices.size(); ++kind) {
      longest = std::max(longest, measured_ns(profile, layer, kind, global_batch));
    }
    sums.time_ns += longest;
    for (const Measurement& point : layer.measurements) {
      const double batches = global_batch / static_cast<double>(point.batch_size);
      sums.output_bytes += static_cast<double>(point.output.count) * batches;
      sums.kept_bytes += static_cast<double>(point.stash.count + point.workspace.count) * batches;
    }
    sums.parameter_bytes += static_cast<double>(layer.parameters.count);
    double in_groups = 0;
    for (std::size_t kind = 0; kind <= profile.other_groups.size(); ++kind) {
      const ShardedLayer& sharded = sharded_on(layer, kind);
      in_groups =
          std::max(in_groups, collectives_ns(layer, group_on(profile, kind), global_batch) +
                                  static_cast<double>((3 * sharded.gather + sharded.scatter).ns) *
                                      global_batch);
    }
    sums.time_ns += in_groups;
    sums.kept_bytes += static_cast<double>(layer.sharded.working_set.count);
  }
  return sums;
}

/// Returns an upper bound on the time of all gathers of tensors that cross so many boundaries in
/// shares, there and back, a sample at a time.
double gathers_ns(const ModelProfile& profile, double output_bytes, double crossings,
                  double global_batch) {
  if (boundary_shares(profile) == 1) return 0;
  double slowest = 0;
  for (std::size_t kind = 0; kind <= profile.other_groups.size(); ++kind) {
    const GroupRing& ring = group_on(profile, kind).ring(CollectiveMembers::Tensor);
    slowest = std::max(slowest, global_batch * slowest_collective_ns(0, ring) +
                                    slowest_collective_ns(output_bytes, ring));
  }
  return 2 * crossings * slowest;
}

Magnitudes bound_magnitudes(const ModelProfile& profile, const Topology& topology,
                            double global_batch) {
  const LayerSums sums = sum_layers(profile, global_batch);
  const Optimizer& optimizer = profile.optimizer;
  const double gradient = in_units(optimizer.gradient_bytes_per_parameter_byte);
  const double framework = in_units(optimizer.framework_bytes_per_parameter_byte);
  const double state = in_units(optimizer.state_bytes_per_parameter_byte);
  const double step = in_units(optimizer.step_ns_per_parameter_byte.value_or(Factor{}));
  const double layers = static_cast<double>(profile.layers.size());
  const double devices = topology.device_count();
  const double crossings = std::min(layers, devices);  // a tensor may cross every boundary
  // The end of a computation that is slowed down is first announced as if it were slowed down
  // throughout.
  const double slowdown = std::max(1.0, in_units(topology.description().overlap_slowdown));
  Magnitudes result;
  result.compute_ns =
      sums.time_ns * slowest_scale(profile, topology) * slowdown + sums.parameter_bytes * step;
  // The reductions in a group, of the gradients of every layer alone at most.
  double reductions_ns = 0;
  for (std::size_t kind = 0; kind <= profile.other_groups.size(); ++kind) {
    const GroupShape& group = group_on(profile, kind);
    double on_kind = 0;
    for (const GroupRing& ring : {group.copies, group.expert_copies}) {
      if (ring.members == 1) continue;
      on_kind += 2 * layers * slowest_collective_ns(0, ring) +
                 2 * slowest_collective_ns(sums.parameter_bytes * std::max(1.0, gradient), ring);
    }
    reductions_ns = std::max(reductions_ns, on_kind);
  }
  result.communication_ns +=
      reductions_ns + gathers_ns(profile, sums.output_bytes, crossings, global_batch);
  result.bytes = sums.kept_bytes + sums.parameter_bytes * (1 + gradient + framework + state) +
                 9 * sums.output_bytes;
  result.communication_ns +=
      (2 * crossings * sums.output_bytes +
       4 * sums.parameter_bytes * gradient * most_hops_through_a_port(topology.description())) *
          1e9 / static_cast<double>(slowest_bandwidth(topology).bytes_per_second) +
      static_cast<double>(slowest_latency(topology.description()).ns) *
          (2 * crossings * global_batch + 4 * devices * layers) +
      // The all-gathers of sharded updates.
      4 * sums.parameter_bytes * most_hops_through_a_port(topology.description()) * 1e9 /
          static_cast<double>(slowest_bandwidth(topology).bytes_per_second) *
          (topology.description().shards_optimizer ? 1 : 0) +
      slowest_reductions_ns(topology.description(), 2 * layers,
                            2 * sums.parameter_bytes * gradient);
  return result;
}

/// Returns the names of the kinds that were measured: "a", or "a" or "b".
std::string measured_kinds(const ModelProfile& profile) {
  std::string names = fmt::format("\"{}\"", profile.device);
  for (const std::string& other : profile.other_devices) names += fmt::format(" or \"{}\"", other);
  return names;
}

}  // namespace

std::optional<TimeSource> time_source(const ModelProfile& profile, const DeviceKind& kind) {
  const auto measured = [&](std::size_t i) -> const std::string& {
    return i == 0 ? profile.device : profile.other_devices[i - 1];
  };
  const std::size_t count = profile.other_devices.size() + 1;
  for (std::size_t i = 0; i < count; ++i) {
    if (kind.name == measured(i)) return TimeSource(i, kOne);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto found = kind.time_scale.find(measured(i));
    if (found != kind.time_scale.end()) return TimeSource(i, found->second);
  }
  return std::nullopt;
}

std::vector<TimeSource> least_time_sources(const ModelProfile& profile, const Topology& topology) {
  std::vector<TimeSource> sources;
  for (const std::int32_t kind : kinds_in_use(topology)) {
    const DeviceKind& of_devices = topology.description().devices[static_cast<std::size_t>(kind)];
    const TimeSource source = time_source(profile, of_devices).value_or(kOne);
    const auto known = std::find_if(sources.begin(), sources.end(), [&](const TimeSource& other) {
      return other.measured == source.measured;
    });
    if (known == sources.end()) {
      sources.push_back(source);
    } else {
      known->scale = std::min(known->scale, source.scale);
    }
  }
  return sources;
}

std::vector<Violation> check_compatible(const ModelProfile& profile, const Topology& topology,
                                        std::int64_t global_batch_size) {
  std::vector<Violation> violations;
  std::set<std::string> used;
  for (const ServerGroup& group : topology.description().servers) used.insert(group.device);
  for (const DeviceKind& kind : topology.description().devices) {
    if (used.count(kind.name) == 0 || time_source(profile, kind)) continue;
    violations.push_back(
        {"/devices/" + pointer_step(kind.name),
         fmt::format("expected the profiled device {} or a time_scale for it, got \"{}\" "
                     "without one",
                     measured_kinds(profile), kind.name)});
  }
  if (!violations.empty()) return violations;
  if (const std::size_t kinds = least_time_sources(profile, topology).size();
      kinds > kMaxMeasuredKindsInUse) {
    violations.push_back(
        {"/devices", fmt::format("expected at most {} kinds with times of their own, got {}",
                                 kMaxMeasuredKindsInUse, kinds)});
    return violations;
  }
  for (const std::vector<ModelProfile>* others : {&profile.stage_forms, &profile.recomputing}) {
    for (const ModelProfile& other : *others) {
      violations = check_compatible(other, topology, global_batch_size);
      if (!violations.empty()) return violations;
    }
  }
  const Magnitudes magnitudes =
      bound_magnitudes(profile, topology, static_cast<double>(global_batch_size));
  const double time = magnitudes.compute_ns + magnitudes.communication_ns;
  if (time > kLongestIterationNs) {
    violations.push_back(
        {"", fmt::format("expected an iteration of at most {:.0e} ns (11 days) in any plan, got up "
                         "to {:.1e} ns for a global batch of {}",
                         kLongestIterationNs, time, global_batch_size)});
  }
  if (magnitudes.bytes > kLargestMemory) {
    violations.push_back(
        {"", fmt::format("expected tensors of at most {:.0e} bytes together, got {:.1e} for a "
                         "global batch of {}",
                         kLargestMemory, magnitudes.bytes, global_batch_size)});
  }
  return violations;
}

std::vector<Violation> costing_faults(const Plan& plan, const ModelProfile& profile,
                                      const Topology& topology) {
  std::vector<Violation> faults =
      validate(plan, static_cast<std::int32_t>(profile.layers.size()), topology);
  for (Violation& fault : check_compatible(profile, topology, plan.global_batch_size)) {
    faults.push_back(std::move(fault));
  }
  if (!faults.empty()) return faults;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (match_buckets(in_form(profile, plan.stages[s].form), plan.stages[s])) continue;
    faults.push_back({fmt::format("/stages/{}/costs/gradient_buckets_bytes", s),
                      "expected buckets of whole layers' gradients, last layer first, all of the "
                      "stage's"});
  }
  return faults;
}

}  // namespace dapple
