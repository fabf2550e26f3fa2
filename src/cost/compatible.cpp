#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "dapple/cost/costs.h"

namespace dapple {
namespace {

/// No iteration may take longer than this; ticks of it leave three bits to spare.
constexpr double kLongestIterationNs = 1e15;
constexpr double kLargestMemory = 1e18;

/// Upper bounds over every plan of a problem, in floating point: only their size matters.
struct Magnitudes {
  double compute_ns = 0;
  double communication_ns = 0;
  double bytes = 0;
};

double slowest_scale(const ModelProfile& profile, const Topology& topology) {
  double slowest = 1;
  for (const DeviceKind& kind : topology.description().devices) {
    const auto found = kind.time_scale.find(profile.device);
    if (found != kind.time_scale.end()) {
      slowest = std::max(slowest, static_cast<double>(found->second.billionths) / 1e9);
    }
  }
  return slowest;
}

Magnitudes bound_magnitudes(const ModelProfile& profile, const Topology& topology,
                            double global_batch) {
  const double layers = static_cast<double>(profile.layers.size());
  const double devices = topology.device_count();
  double output_bytes = 0;
  double parameter_bytes = 0;
  Magnitudes result;
  for (const Layer& layer : profile.layers) {
    const bool proportional = layer.measurements.size() == 1 &&
                              profile.batch_scaling == BatchScaling::Proportional;
    for (const Measurement& point : layer.measurements) {
      const double batches =
          proportional ? global_batch / static_cast<double>(point.batch_size) : global_batch;
      const double time = 2.0 * static_cast<double>(point.forward.ns) +
                          static_cast<double>(point.backward.ns);
      const double overhead = static_cast<double>(layer.fixed_overhead.ns);
      result.compute_ns += time * batches + (3 * overhead + 3) * global_batch;
      const double per_sample = 1.0 / static_cast<double>(point.batch_size);
      output_bytes += static_cast<double>(point.output.count) * per_sample * global_batch;
      result.bytes += static_cast<double>(point.stash.count + point.workspace.count) * per_sample *
                      global_batch;
    }
    parameter_bytes += static_cast<double>(layer.parameters.count);
  }
  // A backward that is slowed down is announced as if it were so to its end.
  const Factor slowdown = topology.description().overlap_slowdown;
  result.compute_ns *= slowest_scale(profile, topology) *
                       std::max(1.0, static_cast<double>(slowdown.billionths) / 1e9);
  const Optimizer& optimizer = profile.optimizer;
  const double gradient = static_cast<double>(optimizer.gradient_bytes_per_parameter_byte.billionths) / 1e9;
  const double state = static_cast<double>(optimizer.state_bytes_per_parameter_byte.billionths) / 1e9;
  if (optimizer.step_ns_per_parameter_byte) {
    result.compute_ns +=
        parameter_bytes * static_cast<double>(optimizer.step_ns_per_parameter_byte->billionths) / 1e9;
  }
  // A tensor may cross every boundary.
  const double crossings = std::min(layers, devices);
  result.bytes += parameter_bytes * (1 + gradient + state) + 9 * output_bytes;
  double slowest_bandwidth = 1e18;
  for (const Port& port : topology.ports()) {
    slowest_bandwidth =
        std::min(slowest_bandwidth, static_cast<double>(port.bandwidth.bytes_per_second));
  }
  double slowest_latency = 0;
  for (const ServerGroup& group : topology.description().servers) {
    slowest_latency = std::max(slowest_latency, static_cast<double>(group.links.port.latency.ns));
    if (group.links.host_path) {
      slowest_latency =
          std::max(slowest_latency, static_cast<double>(group.links.host_path->latency.ns));
    }
    for (const LinkKind& kind : group.links.kinds) {
      slowest_latency = std::max(slowest_latency, static_cast<double>(kind.link.latency.ns));
    }
    for (const Nic& nic : group.nics) {
      double path = 2 * static_cast<double>(nic.link.latency.ns);
      if (topology.description().network) {
        path += static_cast<double>(topology.description().network->latency.ns);
      }
      slowest_latency = std::max(slowest_latency, path);
    }
  }
  result.communication_ns =
      (2 * crossings * output_bytes + 4 * parameter_bytes * gradient) / slowest_bandwidth * 1e9 +
      slowest_latency * (2 * crossings * global_batch + 4 * devices * layers);
  return result;
}

}  // namespace

std::vector<Violation> check_compatible(const ModelProfile& profile, const Topology& topology,
                                        std::int64_t global_batch_size) {
  std::vector<Violation> violations;
  std::set<std::string> used;
  for (const ServerGroup& group : topology.description().servers) used.insert(group.device);
  for (const DeviceKind& kind : topology.description().devices) {
    if (used.count(kind.name) == 0 || kind.name == profile.device ||
        kind.time_scale.count(profile.device) != 0) {
      continue;
    }
    violations.push_back(
        {"/devices/" + kind.name,
         fmt::format("expected the profiled device \"{}\" or a time_scale for it, got \"{}\" "
                     "without one (--time-scale X gives it)",
                     profile.device, kind.name)});
  }
  if (!violations.empty()) return violations;
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

}  // namespace dapple
