// Upper bounds on what a device can send and receive over all its links together.
#pragma once

#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/topology/topology.h"
#include "search/bounds/transfer_shape.h"

namespace dapple::search {

/// The samples that a device sends and receives, as one port of all its links in each direction.
struct DeviceShapes {
  PortShape out;
  PortShape in;
};

/// The bandwidths of all links of each device together, and the least latency of any route.
class DeviceLinks {
 public:
  /// Samples are counted in so many parts (PortShape). O(devices * devices of a server +
  /// servers^2).
  explicit DeviceLinks(const Topology& topology, std::int64_t parts = 1);

  /// Returns the shapes of the device that takes longest for its share, in each direction. There
  /// may be several devices of each replica, which follow each other: then each receives all
  /// samples of the replica, and sends its part of them or more.
  DeviceShapes busiest(const std::vector<DeviceIndex>& devices, const ReplicaShares& shares) const;
  /// Returns shapes that are busy no longer than those of busiest() for this number of devices,
  /// which are a replica each unless samples are counted in parts, with any shares.
  DeviceShapes busiest_anywhere(std::int64_t devices, std::int64_t micro_batch_size) const;

 private:
  std::int64_t parts_;
  IndexedVector<DeviceIndex, Bandwidth> out_;
  IndexedVector<DeviceIndex, Bandwidth> in_;
  Bandwidth widest_out_;
  Bandwidth widest_in_;
  Duration shortest_latency_;
};

/// The boundaries in front of and behind a stage.
struct BothBoundaries {
  BoundaryVolume before;
  BoundaryVolume behind;
  std::int64_t num_micro_batches = 1;
};

/// Lower bound on the time for which all micro-batches of both boundaries keep a device busy in one
/// direction, latency included.
Duration busy_with_both(const PortShape& shape, const BothBoundaries& boundaries);

}  // namespace dapple::search
