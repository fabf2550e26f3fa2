// Moments of an iteration on a GPU, each an event, and when they were by the host's clock.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

#include "dapple/cuda/memory/device.h"
#include "dapple/exec/run/backend.h"

namespace dapple::exec {

/// Marks may be made by several threads; events are used again in each iteration.
class CudaMarks {
 public:
  /// Of an iteration; waits until the stream is at rest, so that GPU and host agree on a moment.
  void begin(const cuda::Stream& stream);
  Mark mark(const cuda::Stream& stream);
  /// Waits for it. Throws what has gone wrong on the GPU.
  std::int64_t moment_of(const Mark& mark) const;

 private:
  std::mutex mutex_;  // of the list
  std::deque<cuda::Event> events_;
  std::size_t count_ = 0;  // of this iteration
  cuda::Event zero_;
  std::int64_t zero_moment_ = 0;
};

}  // namespace dapple::exec
