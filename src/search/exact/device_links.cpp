#include "search/exact/device_links.h"

#include <algorithm>
#include <set>

namespace dapple::search {
namespace {

/// Whether `a` is busy for longer than `b`.
bool is_busier(const PortShape& a, const PortShape& b) {
  return Wide{a.samples} * b.bandwidth.bytes_per_second >
         Wide{b.samples} * a.bandwidth.bytes_per_second;
}

/// The devices of a server from which, and to which, routes over the network are the shortest.
struct NearestDevices {
  DeviceIndex out;
  DeviceIndex in;
};

/// Returns those of each server. A route between servers is the way to the sender's NIC, the way
/// between the servers, and the way from the receiver's NIC, so that they do not depend on the
/// other server. Requires: there are several servers.
std::vector<NearestDevices> nearest_devices(const Topology& topology) {
  std::vector<NearestDevices> nearest;
  for (std::int32_t s = 0; s < topology.server_count(); ++s) {
    const Server& server = topology.server({s});
    const DeviceIndex other = topology.server({s == 0 ? 1 : 0}).first_device;
    NearestDevices devices{.out = server.first_device, .in = server.first_device};
    for (std::int32_t i = 1; i < server.device_count; ++i) {
      const DeviceIndex device{server.first_device.value + i};
      const auto latency = [&](DeviceIndex from, DeviceIndex to) {
        return topology.route(from, to).latency;
      };
      if (latency(device, other) < latency(devices.out, other)) devices.out = device;
      if (latency(other, device) < latency(other, devices.in)) devices.in = device;
    }
    nearest.push_back(devices);
  }
  return nearest;
}

}  // namespace

DeviceLinks::DeviceLinks(const Topology& topology, std::int64_t parts)
    : parts_(parts), shortest_latency_(Duration::infinite()) {
  const auto together = [&](const std::set<PortIndex>& ports) {
    Bandwidth sum;
    for (const PortIndex port : ports) sum = sum + topology.ports()[port.position()].bandwidth;
    return sum;
  };
  const bool are_several = topology.server_count() > 1;
  for (std::int32_t here = 0; here < topology.device_count(); ++here) {
    const ServerIndex index = topology.device({here}).server;
    const Server& server = topology.server(index);
    std::set<PortIndex> out;
    std::set<PortIndex> in;
    // Every flow passes the first and the last port of its route, so these ports carry all flows.
    const auto add_routes = [&](DeviceIndex there) {
      const Route away = topology.route({here}, there);
      const Route back = topology.route(there, {here});
      out.insert(away.ports.front());
      in.insert(back.ports.back());
      shortest_latency_ = std::min({shortest_latency_, away.latency, back.latency});
    };
    for (std::int32_t i = 0; i < server.device_count; ++i) {
      const DeviceIndex there{server.first_device.value + i};
      if (there.value != here) add_routes(there);
    }
    // The first port of a route to another server, and the last one from there, are those of the
    // way to or from the NIC, whichever server it is.
    if (are_several) add_routes(topology.server({index.value == 0 ? 1 : 0}).first_device);
    out_.push_back(together(out));
    in_.push_back(together(in));
    widest_out_ = std::max(widest_out_, out_.back());
    widest_in_ = std::max(widest_in_, in_.back());
  }
  if (!are_several) return;
  const std::vector<NearestDevices> nearest = nearest_devices(topology);
  for (std::size_t from = 0; from < nearest.size(); ++from) {
    for (std::size_t to = 0; to < nearest.size(); ++to) {
      if (from == to) continue;
      const Route route = topology.route(nearest[from].out, nearest[to].in);
      shortest_latency_ = std::min(shortest_latency_, route.latency);
    }
  }
}

DeviceShapes DeviceLinks::busiest(const std::vector<DeviceIndex>& devices,
                                  const ReplicaShares& shares) const {
  DeviceShapes busiest;
  const std::int64_t of_replica = std::ssize(devices) / shares.replicas();
  for (std::int64_t i = 0; i < std::ssize(devices); ++i) {
    const DeviceIndex device = devices[static_cast<std::size_t>(i)];
    const std::int64_t samples = parts_ * shares.of(i / of_replica).size();
    const PortShape out{samples / of_replica, out_[device], shortest_latency_};
    const PortShape in{samples, in_[device], shortest_latency_};
    if (i == 0 || is_busier(out, busiest.out)) busiest.out = out;
    if (i == 0 || is_busier(in, busiest.in)) busiest.in = in;
  }
  return busiest;
}

DeviceShapes DeviceLinks::busiest_anywhere(std::int64_t devices,
                                           std::int64_t micro_batch_size) const {
  // With any shares, some replica has as many as the largest of equal shares; where it has several
  // devices, each of those of the largest one sends an equal part of all samples or more.
  const std::int64_t samples = parts_ == 1 ? replica_share(micro_batch_size, devices, 0).size()
                                           : parts_ * micro_batch_size / devices;
  // The device that receives these samples has gathered them when the last has arrived.
  return {.out = {samples, widest_out_, shortest_latency_},
          .in = {samples, widest_in_, shortest_latency_, samples}};
}

Duration busy_with_both(const PortShape& shape, const BothBoundaries& boundaries) {
  const Bytes size =
      sure_size(shape.samples, boundaries.before) + sure_size(shape.samples, boundaries.behind);
  if (size.count == 0) return {};
  const PortBound port{.size = size, .bandwidth = shape.bandwidth, .time = {}};
  return queue_at(port, boundaries.num_micro_batches + 1) + shape.latency;
}

}  // namespace dapple::search
