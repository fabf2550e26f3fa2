// Whose turn it is under interleaved 1F1B.
//
// Source: Narayanan et al. (SC'21) section 2.2.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dapple {

/// A device takes micro-batches in rounds of as many as there are device groups; in a round it
/// passes all of them through its first chunk, then through its second, and so on. Backwards take
/// turns alike, with the chunks from the last to the first.
class InterleavedTurns {
 public:
  struct Shape {
    std::int64_t groups = 1;         // of devices
    std::int64_t chunks = 1;         // stages per device
    std::int64_t micro_batches = 1;  // a multiple of `groups`: a shorter round would deadlock
  };
  struct Turn {
    std::int64_t chunk = 0;
    std::int64_t micro_batch = 0;
  };

  explicit InterleavedTurns(const Shape& shape) : shape_(shape) {}

  /// Forwards of one device, all chunks together; as many backwards.
  std::int64_t count() const { return shape_.chunks * shape_.micro_batches; }

  /// The k-th of them. O(1). Requires: 0 <= k < count().
  Turn at(std::int64_t k) const {
    const std::int64_t round = k / (shape_.groups * shape_.chunks);
    const std::int64_t chunk = k / shape_.groups % shape_.chunks;
    return {.chunk = chunk, .micro_batch = round * shape_.groups + k % shape_.groups};
  }

  /// Forwards of the devices of that group before they turn to one forward, one backward.
  std::int64_t warm_up(std::int64_t group) const {
    return std::min(count(), 2 * (shape_.groups - group - 1) + (shape_.chunks - 1) * shape_.groups);
  }

 private:
  Shape shape_;
};

}  // namespace dapple
