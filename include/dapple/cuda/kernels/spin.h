// Passes time on a GPU without computation: one thread watches the GPU's clock. It stands for
// computation of which only the duration is known. Devices that share a GPU spin concurrently.
#pragma once

#include <cstdint>

#include "dapple/core/quantity.h"
#include "dapple/cuda/memory/device.h"

namespace dapple::cuda {

class Spin {
 public:
  /// Measures with events the overhead of a spin kernel, for which it waits for the compute stream,
  /// for about a millisecond. The device must outlive it.
  explicit Spin(Device& device);

  /// The next kernel counts time from its own start.
  void restart() { is_counting_ = false; }

  /// Enqueues a kernel on the compute stream that ends `moment` after the start of the first kernel
  /// since restart(). The GPU's clock advances at least every microsecond; the launch overhead of a
  /// kernel is part of the time.
  void pass_until(Duration moment);

 private:
  Duration measured_overhead();

  Device& device_;
  // The start of the first kernel since restart(), by the GPU's clock.
  Buffer begin_;
  Duration overhead_;
  bool is_counting_ = false;
};

}  // namespace dapple::cuda
