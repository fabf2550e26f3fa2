// Compares the clock of this host with that of rank 0's host.
#pragma once

#include <cstdint>
#include <limits>

namespace dapple::exec {

/// The fastest of several round trips, in each of which rank 0 is asked for its time. The error of
/// its offset is at most half of that round trip.
class ClockComparison {
 public:
  /// The number of round trips to make.
  static constexpr int kRoundTrips = 32;

  /// Takes in a round trip: when it started and ended here, and what rank 0 answered.
  void add(std::int64_t start, std::int64_t theirs, std::int64_t end) {
    if (end - start >= fastest_) return;
    fastest_ = end - start;
    offset_ = theirs - (start + fastest_ / 2);
  }

  /// Returns what to add to a time of this host's clock; 0 if there was no round trip.
  std::int64_t offset() const { return offset_; }

 private:
  std::int64_t fastest_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t offset_ = 0;
};

}  // namespace dapple::exec
