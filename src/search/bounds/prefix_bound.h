// Lower bounds on the time of the layers in front of a cut, whatever devices they have ((P1) in
// docs/bounds.md).
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/core/quantity.h"
#include "dapple/cost/cost_model.h"
#include "dapple/search/indices.h"

namespace dapple::search {

/// Computes (P1) for ranges of layers. Sums are kept in floating point, with a margin.
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

  /// Returns the bounds for the layers in front of a cut. `capacity` is the sum of the speeds of
  /// the devices that are left. O(1).
  /// Requires: capacity > 0, or the cut is the first one.
  Rest rest(CutIndex cut, double capacity) const;

  /// Lower bound on the time of all micro-batches of `layers` on the busiest of several devices,
  /// whose speeds sum to `capacity`. O(1).
  /// Requires: capacity > 0.
  Duration busiest(LayerRange layers, double capacity) const;

  /// Lower bounds on the forward, and on forward and backward, of one micro-batch through `layers`
  /// where no device has fewer than `samples` samples of it. O(1).
  /// Requires: in every form a replica is one device.
  Duration forward(LayerRange layers, std::int64_t samples) const;
  Duration round_trip(LayerRange layers, std::int64_t samples) const;

  /// Lower bound on the time of all micro-batches of all layers on all devices, attained where
  /// every device has an equal part of the work for its speed. O(1).
  Duration work_alone() const;

  /// Returns the lowest beginning of a stage that ends at `end` with which devices whose speeds sum
  /// to `capacity` stay below `incumbent` by this bound. O(log layers).
  CutIndex first_begin_within(CutIndex end, double capacity, Duration incumbent) const;

  /// Returns the highest beginning of a stage that ends at `end` with which all other layers may
  /// stay below `incumbent` by this bound on devices whose speeds sum to `capacity`; the first cut
  /// if there is none. O(log layers).
  CutIndex last_begin_within(CutIndex end, double capacity, Duration incumbent) const;

  /// The speed of a kind of device: no layer takes less than its work divided by the speed. The
  /// quickest kind has speed 1 where one is the quickest for every layer.
  double speed(std::int32_t device_kind) const {
    return speeds_[static_cast<std::size_t>(device_kind)];
  }

 private:
  double micro_batch_;
  double global_batch_;
  // Sum of the speeds of all devices.
  double all_devices_ = 0;
  // Prefix sums over the layers, in nanoseconds per sample on the kind that is the quickest for
  // each.
  IndexedVector<CutIndex, double> forward_;
  IndexedVector<CutIndex, double> round_trip_;
  // Indexed by kind of device.
  std::vector<double> speeds_;
};

}  // namespace dapple::search
