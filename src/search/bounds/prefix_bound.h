// Lower bounds on the time of the layers in front of a cut, whatever devices they have ((P1) in
// docs/bounds.md).
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"

namespace dapple::search {

class PrefixBound {
 public:
  /// Lower bounds for all layers in front of a cut on the devices that are left.
  struct Rest {
    // One micro-batch, forward.
    Duration forward;
    // One micro-batch, forward and backward.
    Duration round_trip;
    // All micro-batches on the busiest device.
    Duration busiest;
  };

  PrefixBound(const CostModel& costs, std::int64_t micro_batch_size,
              std::int64_t global_batch_size);

  /// Returns the bounds for the layers in front of layer `begin`. `capacity` is the sum of the
  /// speeds of the devices that are left. O(1).
  /// Requires: capacity > 0, or begin == 0.
  Rest rest(std::int32_t begin, double capacity) const;

  /// Lower bound on the time of all micro-batches of `layers` on the busiest of several devices,
  /// whose speeds sum to `capacity`. O(1).
  /// Requires: capacity > 0.
  Duration busiest(LayerRange layers, double capacity) const;

  /// Lower bound on the time of all micro-batches of all layers on all devices, attained where
  /// every device has an equal part of the work for its speed. O(1).
  Duration work_alone() const;

  /// Returns the lowest first layer of a stage that ends at `end` with which devices whose speeds
  /// sum to `capacity` stay below `incumbent` by this bound. O(log layers).
  std::int32_t first_layer_within(std::int32_t end, double capacity, Duration incumbent) const;

  /// The speed of a kind of device, relative to that of the quickest kind.
  double speed(std::int32_t device_kind) const {
    return speeds_[static_cast<std::size_t>(device_kind)];
  }

 private:
  double micro_batch_;
  double global_batch_;
  // Sum of the speeds of all devices.
  double all_devices_ = 0;
  // Prefix sums over the layers, in nanoseconds per sample on the quickest kind of device.
  std::vector<double> forward_;
  std::vector<double> round_trip_;
  // Indexed by kind of device.
  std::vector<double> speeds_;
};

}  // namespace dapple::search
