// Transfers between two sets of devices, whatever the size of what is moved: which ports carry how
// many of a micro-batch's samples.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "dapple/cost/costs.h"
#include "dapple/search/bound.h"

namespace dapple {

class TransferShapes {
 public:
  /// Devices with a number that stands for them.
  struct Side {
    std::int32_t number = 0;
    const std::vector<DeviceIndex>& devices;
  };

  TransferShapes(const CostModel& costs, std::int64_t micro_batch_size)
      : costs_(costs), micro_batch_size_(micro_batch_size) {}

  /// Bounds for the boundary before layer `cut` with `front` before it and `back` behind it.
  /// O(1) after the first time for the same two sides.
  BoundaryBound boundary(std::int32_t cut, const Side& front, const Side& back);

 private:
  struct PortShape {
    std::int64_t samples = 0;
    Bandwidth bandwidth;
    Duration latency;
  };
  struct Shape {
    std::vector<PortShape> forward;
    std::vector<PortShape> backward;
  };
  std::vector<PortShape> make_shape(const std::vector<DeviceIndex>& from,
                                    const std::vector<DeviceIndex>& to) const;
  Duration bound_ports(std::int32_t cut, const std::vector<PortShape>& shapes,
                       std::vector<PortBound>& ports) const;

  const CostModel& costs_;
  std::int64_t micro_batch_size_;
  std::map<std::pair<std::int32_t, std::int32_t>, Shape> shapes_;
};

}  // namespace dapple
