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

}  // namespace

DeviceLinks::DeviceLinks(const Topology& topology) : shortest_latency_(Duration::infinite()) {
  const auto together = [&](const std::set<PortIndex>& ports) {
    Bandwidth sum;
    for (const PortIndex port : ports) sum = sum + topology.ports()[port.position()].bandwidth;
    return sum;
  };
  for (std::int32_t here = 0; here < topology.device_count(); ++here) {
    std::set<PortIndex> out;
    std::set<PortIndex> in;
    for (std::int32_t there = 0; there < topology.device_count(); ++there) {
      if (here == there) continue;
      // Every flow passes the first and the last port of its route, so these ports carry all flows.
      const Route away = topology.route({here}, {there});
      const Route back = topology.route({there}, {here});
      out.insert(away.ports.front());
      in.insert(back.ports.back());
      shortest_latency_ = std::min({shortest_latency_, away.latency, back.latency});
    }
    out_.push_back(together(out));
    in_.push_back(together(in));
    widest_out_ = std::max(widest_out_, out_.back());
    widest_in_ = std::max(widest_in_, in_.back());
  }
}

DeviceShapes DeviceLinks::busiest(const std::vector<DeviceIndex>& devices,
                                  std::int64_t micro_batch_size) const {
  DeviceShapes busiest;
  const auto replicas = static_cast<std::int64_t>(devices.size());
  for (std::int64_t i = 0; i < replicas; ++i) {
    const DeviceIndex device = devices[static_cast<std::size_t>(i)];
    const std::int64_t samples = replica_share(micro_batch_size, replicas, i).size();
    const PortShape out{samples, out_[device], shortest_latency_};
    const PortShape in{samples, in_[device], shortest_latency_};
    if (i == 0 || is_busier(out, busiest.out)) busiest.out = out;
    if (i == 0 || is_busier(in, busiest.in)) busiest.in = in;
  }
  return busiest;
}

DeviceShapes DeviceLinks::busiest_anywhere(std::int64_t replicas,
                                           std::int64_t micro_batch_size) const {
  const std::int64_t samples = replica_share(micro_batch_size, replicas, 0).size();
  return {.out = {samples, widest_out_, shortest_latency_},
          .in = {samples, widest_in_, shortest_latency_}};
}

Duration busy_with_both(const PortShape& shape, const BothBoundaries& boundaries) {
  const Bytes size =
      sure_size(shape.samples, boundaries.before) + sure_size(shape.samples, boundaries.behind);
  if (size.count == 0) return {};
  const PortBound port{.size = size, .bandwidth = shape.bandwidth, .time = {}};
  return queue_at(port, boundaries.num_micro_batches + 1) + shape.latency;
}

}  // namespace dapple::search
