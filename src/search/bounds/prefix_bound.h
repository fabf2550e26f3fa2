// What the layers before a cut take at least, however they are put on the devices that are left.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"

namespace dapple::search {

class PrefixBound {
 public:
  /// At least, of everything before a cut on the devices that are left.
  struct Rest {
    Duration forward;     // of one micro-batch through it
    Duration round_trip;  // likewise, forward and backward
    Duration busiest;     // of all micro-batches on the busiest device
  };

  PrefixBound(const CostModel& costs, std::int64_t micro_batch_size,
              std::int64_t global_batch_size);

  /// `capacity`: the sum of the speeds of those devices. Requires: capacity > 0, or begin == 0.
  /// O(1).
  Rest rest(std::int32_t begin, double capacity) const;

  /// At least, of all micro-batches of these layers on the busiest of devices of that capacity
  /// together. O(1). Requires: capacity > 0.
  Duration busiest(LayerRange layers, double capacity) const;

  /// At least, of all micro-batches of all layers, where every device has its even part of them.
  /// O(1).
  Duration work_alone() const;

  /// The first layer with which a stage that ends at `end` may begin, lest devices of that capacity
  /// alone take `incumbent` or longer. O(log layers).
  std::int32_t first_layer_within(std::int32_t end, double capacity, Duration incumbent) const;

  /// Of a kind of device, where the quickest kind has 1.
  double speed(std::int32_t device_kind) const {
    return speeds_[static_cast<std::size_t>(device_kind)];
  }

 private:
  double micro_batch_;
  double global_batch_;
  double all_devices_ = 0;       // their speeds together
  std::vector<double> forward_;  // ns per sample, prefix sums, on the quickest kind of device
  std::vector<double> round_trip_;
  std::vector<double> speeds_;
};

}  // namespace dapple::search
