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

std::vector<PortShape> port_shapes(const std::vector<TransferEnd>& from,
                                   const std::vector<TransferEnd>& to, const Topology& topology) {
  // A byte per sample: the sizes of the ports' loads are then their samples.
  const TransferCost cost = transfer_cost(
      from, to, [](std::int64_t samples) { return Bytes{samples}; }, topology);
  std::vector<PortShape> shapes;
  for (const PortLoad& load : cost.ports) {
    const PortShape shape{.samples = load.size.count,
                          .bandwidth = topology.ports()[load.port.position()].bandwidth,
                          .latency = load.latency};
    const auto alike = std::find_if(shapes.begin(), shapes.end(), [&](const PortShape& other) {
      return other.bandwidth == shape.bandwidth && other.latency == shape.latency;
    });
    if (alike == shapes.end()) {
      shapes.push_back(shape);
    } else {
      alike->samples = std::max(alike->samples, shape.samples);
    }
  }
  std::sort(shapes.begin(), shapes.end());
  return shapes;
}

Duration bound_ports(const std::vector<PortShape>& shapes, const BoundaryVolume& volume,
                     std::vector<PortBound>& ports) {
  if (volume.whole.count == 0) return {};
  Duration longest;
  for (const PortShape& shape : shapes) {
    const Bytes size = sure_size(shape.samples, volume);
    const Duration time = round_up(occupation(size, shape.bandwidth)) + shape.latency;
    ports.push_back({.size = size, .bandwidth = shape.bandwidth, .time = time});
    longest = std::max(longest, time);
  }
  return longest;
}

}  // namespace

TransferShape transfer_shape(const BoundarySides& sides, std::int64_t micro_batch_size,
                             const Topology& topology) {
  const std::vector<TransferEnd> front = shares(sides.front, micro_batch_size);
  const std::vector<TransferEnd> back = shares(sides.back, micro_batch_size);
  return {.forward = port_shapes(front, back, topology),
          .backward = port_shapes(back, front, topology)};
}

/// Every tensor's size is rounded up on its own, so some samples may take up to a byte per tensor
/// less than their share of the whole.
Bytes sure_size(std::int64_t samples, const BoundaryVolume& volume) {
  const std::int64_t sure = std::max<std::int64_t>(0, volume.whole.count - volume.tensors);
  return {divide_down(Wide{sure} * samples, volume.micro_batch_size)};
}

BoundaryBound boundary_bound(const TransferShape& shape, const BoundaryVolume& volume) {
  BoundaryBound boundary;
  boundary.forward = bound_ports(shape.forward, volume, boundary.forward_ports);
  boundary.backward = bound_ports(shape.backward, volume, boundary.backward_ports);
  return boundary;
}

BoundaryVolume boundary_volume(const CostModel& costs, std::int32_t cut,
                               std::int64_t micro_batch_size) {
  return {.whole = costs.boundary_size(cut, micro_batch_size),
          .tensors = costs.layer_count(),
          .micro_batch_size = micro_batch_size};
}

Duration pace_of(const std::vector<PortBound>& ports) {
  Duration longest;
  Duration pace;
  for (const PortBound& port : ports) {
    const Duration busy = queue_at(port, 2);
    if (port.time > longest) pace = busy;
    if (port.time == longest) pace = std::max(pace, busy);
    longest = std::max(longest, port.time);
  }
  return pace;
}

const TransferShape& TransferShapes::shape(std::int32_t front, std::int32_t back,
                                           const std::function<BoundarySides()>& sides) {
  const auto found = shapes_.find({front, back});
  if (found != shapes_.end()) return found->second;
  return shapes_
      .emplace(std::pair{front, back},
               transfer_shape(sides(), micro_batch_size_, costs_.topology()))
      .first->second;
}

}  // namespace dapple
