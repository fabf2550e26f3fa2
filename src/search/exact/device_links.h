// What a device can send and receive at most, over all its links together.
#pragma once

#include <vector>

#include "dapple/search/bounds/bound.h"
#include "dapple/topology/topology.h"
#include "search/bounds/transfer_shape.h"

namespace dapple::search {

/// All bytes of some samples that leave a device, or reach it, whatever the way.
struct DeviceShapes {
  PortShape out;
  PortShape in;
};

class DeviceLinks {
 public:
  /// O(devices^2).
  explicit DeviceLinks(const Topology& topology);

  /// Of the replica that is busy longest with its share.
  DeviceShapes busiest(const std::vector<DeviceIndex>& devices,
                       std::int64_t micro_batch_size) const;
  /// The same for so many replicas on any devices: no shorter busy anywhere.
  DeviceShapes busiest_anywhere(std::int64_t replicas, std::int64_t micro_batch_size) const;

 private:
  std::vector<Bandwidth> out_;  // per device
  std::vector<Bandwidth> in_;
  Bandwidth widest_out_;
  Bandwidth widest_in_;
  Duration shortest_latency_;
};

/// How long all micro-batches of two boundaries keep a device busy, one way.
struct BothBoundaries {
  BoundaryVolume before;
  BoundaryVolume behind;
  std::int64_t num_micro_batches = 1;
};
Duration busy_with_both(const PortShape& shape, const BothBoundaries& boundaries);

}  // namespace dapple::search
