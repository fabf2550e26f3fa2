#include "transfer_shape.h"

#include <algorithm>

namespace dapple {
namespace {

std::vector<TransferEnd> shares(const std::vector<DeviceIndex>& devices, std::int64_t samples) {
  std::vector<TransferEnd> ends;
  const auto replicas = static_cast<std::int64_t>(devices.size());
  for (std::int64_t i = 0; i < replicas; ++i) {
    ends.push_back({devices[static_cast<std::size_t>(i)], replica_share(samples, replicas, i)});
  }
  return ends;
}

}  // namespace

std::vector<TransferShapes::PortShape> TransferShapes::make_shape(
    const std::vector<DeviceIndex>& from, const std::vector<DeviceIndex>& to) const {
  // A byte per sample: the sizes of the ports' loads are then their samples.
  const Topology& topology = costs_.topology();
  const TransferCost cost = transfer_cost(
      shares(from, micro_batch_size_), shares(to, micro_batch_size_),
      [](std::int64_t samples) { return Bytes{samples}; }, topology);
  std::vector<PortShape> shapes;
  for (const PortLoad& load : cost.ports) {
    const PortShape shape{.samples = load.size.count,
                          .bandwidth = topology.ports()[load.port.position()].bandwidth,
                          .latency = load.latency};
    const auto same_kind = std::find_if(shapes.begin(), shapes.end(), [&](const PortShape& other) {
      return other.bandwidth == shape.bandwidth && other.latency == shape.latency;
    });
    // Of equal ports only the busiest can bound.
    if (same_kind == shapes.end()) {
      shapes.push_back(shape);
    } else {
      same_kind->samples = std::max(same_kind->samples, shape.samples);
    }
  }
  return shapes;
}

/// Every layer's size is rounded up on its own, so the samples of a port may be up to a byte per
/// layer less than their share of the whole.
Duration TransferShapes::bound_ports(std::int32_t cut, const std::vector<PortShape>& shapes,
                                     std::vector<PortBound>& ports) const {
  const Bytes whole = costs_.boundary_size(cut, micro_batch_size_);
  const std::int64_t sure = std::max<std::int64_t>(0, whole.count - costs_.layer_count());
  Duration longest;
  for (const PortShape& shape : shapes) {
    const Bytes size{divide_down(Wide{sure} * shape.samples, micro_batch_size_)};
    const Duration time =
        whole.count == 0 ? Duration{} : round_up(occupation(size, shape.bandwidth)) + shape.latency;
    ports.push_back({.size = size, .bandwidth = shape.bandwidth, .time = time});
    longest = std::max(longest, time);
  }
  return longest;
}

BoundaryBound TransferShapes::boundary(std::int32_t cut, const Side& front, const Side& back) {
  const auto [entry, is_new] = shapes_.try_emplace({front.number, back.number});
  if (is_new) {
    entry->second = {make_shape(front.devices, back.devices),
                     make_shape(back.devices, front.devices)};
  }
  BoundaryBound boundary;
  boundary.forward = bound_ports(cut, entry->second.forward, boundary.forward_ports);
  boundary.backward = bound_ports(cut, entry->second.backward, boundary.backward_ports);
  return boundary;
}

}  // namespace dapple
