// Time that passes on a GPU while nothing is computed: one thread of it watches the GPU's clock.
// What stands for computation of which only the length is known. Devices that share a GPU spin
// beside each other.
#pragma once

#include <cstdint>

#include "dapple/core/quantity.h"
#include "dapple/cuda/memory/device.h"

namespace dapple::cuda {

class Spin {
 public:
  /// Measures by events what a kernel takes beside what it spins: waits for the compute stream,
  /// about a millisecond. The device must outlive it.
  explicit Spin(Device& device);

  /// What is enqueued next counts from its own begin.
  void restart() { is_counting_ = false; }

  /// Enqueues on the compute stream what is over so long after the begin of the first of these
  /// since restart(). The GPU's clock ticks every microsecond or more often; what a kernel takes to
  /// be launched is part of the time.
  void pass_until(Duration moment);

 private:
  Duration measured_overhead();

  Device& device_;
  Buffer begin_;  // of the first since restart(), by the GPU's clock
  Duration overhead_;
  bool is_counting_ = false;
};

}  // namespace dapple::cuda
