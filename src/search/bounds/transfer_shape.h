// Transfers between two sets of devices, whatever the size of what is moved: which ports carry how
// many of a micro-batch's samples.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/search/bounds/bound.h"

namespace dapple::search {

/// Samples of each micro-batch that go through a port.
struct PortShape {
  std::int64_t samples = 0;
  Bandwidth bandwidth;
  Duration latency;

  friend auto operator<=>(const PortShape&, const PortShape&) = default;
};

/// The ports of a boundary in both directions; of those alike, the busiest. Ascending. Where
/// replicas are independent, also what different pairs of them send, at the bandwidths and
/// latencies of their routes.
struct TransferShape {
  std::vector<PortShape> forward;
  std::vector<PortShape> backward;
  std::vector<PortShape> forward_pairs = {};
  std::vector<PortShape> backward_pairs = {};

  friend auto operator<=>(const TransferShape&, const TransferShape&) = default;
};

/// Devices of the stages before and behind a boundary, in the order of their replicas.
struct BoundarySides {
  std::vector<DeviceIndex> front;
  std::vector<DeviceIndex> back;
};

TransferShape transfer_shape(const BoundarySides& sides, std::int64_t micro_batch_size,
                             const Topology& topology, Replicas replicas);

/// The fewest samples that a replica of one side sends to one of the other.
std::int64_t least_overlap(std::int64_t micro_batch_size, std::int64_t front, std::int64_t back);

/// Bounds for a boundary of that shape over which `whole` goes for each micro-batch, the sum of
/// `tensors` at most, each rounded up on its own.
struct BoundaryVolume {
  Bytes whole;
  std::int64_t tensors = 0;
  std::int64_t micro_batch_size = 1;
};
BoundaryBound boundary_bound(const TransferShape& shape, const BoundaryVolume& volume);

/// What so many of a micro-batch's samples take of it at least.
Bytes sure_size(std::int64_t samples, const BoundaryVolume& volume);

/// What goes over the boundary before layer `cut`.
BoundaryVolume boundary_volume(const CostModel& costs, std::int32_t cut,
                               std::int64_t micro_batch_size);

/// Shapes by two numbers that stand for the devices before and behind a boundary.
class TransferShapes {
 public:
  TransferShapes(const CostModel& costs, std::int64_t micro_batch_size, Replicas replicas)
      : costs_(costs), micro_batch_size_(micro_batch_size), replicas_(replicas) {}

  /// `sides` is called the first time that two numbers are asked for. O(1) afterwards.
  const TransferShape& shape(std::int32_t front, std::int32_t back,
                             const std::function<BoundarySides()>& sides);

 private:
  const CostModel& costs_;
  std::int64_t micro_batch_size_;
  Replicas replicas_;
  std::map<std::pair<std::int32_t, std::int32_t>, TransferShape> shapes_;
};

}  // namespace dapple::search
