// Time marks of an iteration on a GPU, recorded as events and converted to the host's clock.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

#include "dapple/cuda/memory/device.h"
#include "dapple/exec/run/backend.h"

namespace dapple::exec {

/// Records marks, possibly from several threads; events are reused in each iteration.
class CudaMarks {
 public:
  /// Begins an iteration. Waits until the stream is idle, to obtain a common reference time of GPU
  /// and host.
  void begin(const cuda::Stream& stream);
  Mark mark(const cuda::Stream& stream);
  /// Waits for the mark and returns its time. Throws if the GPU has failed.
  std::int64_t moment_of(const Mark& mark) const;

 private:
  // Guards `events_` and `count_`.
  std::mutex mutex_;
  std::deque<cuda::Event> events_;
  // The number of marks in this iteration.
  std::size_t count_ = 0;
  // The reference event, and its time on the host's clock.
  cuda::Event zero_;
  std::int64_t zero_moment_ = 0;
};

}  // namespace dapple::exec
