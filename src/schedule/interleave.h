// The order in which interleaved 1F1B processes chunks and micro-batches.
//
// Source: Narayanan et al. (SC'21) section 2.2.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dapple {

/// The turns of a device. A device processes micro-batches in rounds; a round has as many
/// micro-batches as there are device groups. Within a round, all of them pass through the first
/// chunk, then through the second, and so on. Backwards take the same turns with the chunks from
/// the last to the first.
class InterleavedTurns {
 public:
  struct Shape {
    // The number of device groups.
    std::int64_t groups = 1;
    // The number of stages per device.
    std::int64_t chunks = 1;
    // A multiple of `groups`: a shorter round would deadlock.
    std::int64_t micro_batches = 1;
  };
  struct Turn {
    std::int64_t chunk = 0;
    std::int64_t micro_batch = 0;
  };

  explicit InterleavedTurns(const Shape& shape) : shape_(shape) {}

  /// Returns the number of forwards of one device, all chunks together; it has as many backwards.
  std::int64_t count() const { return shape_.chunks * shape_.micro_batches; }

  /// Returns the k-th turn. O(1). Requires: 0 <= k < count().
  Turn at(std::int64_t k) const {
    const std::int64_t round = k / (shape_.groups * shape_.chunks);
    const std::int64_t chunk = k / shape_.groups % shape_.chunks;
    return {.chunk = chunk, .micro_batch = round * shape_.groups + k % shape_.groups};
  }

  /// Returns the number of forwards of the devices of a group before they alternate between one
  /// forward and one backward.
  std::int64_t warm_up(std::int64_t group) const {
    return std::min(count(), 2 * (shape_.groups - group - 1) + (shape_.chunks - 1) * shape_.groups);
  }

 private:
  Shape shape_;
};

}  // namespace dapple
