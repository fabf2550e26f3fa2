// What one device of a running plan does with its micro-batches: the math, or what stands for it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "dapple/core/quantity.h"
#include "dapple/exec/transport.h"
#include "dapple/plan/action.h"
#include "dapple/schedule/device_schedule.h"

namespace dapple {

/// Told, in the order of the buckets, that a bucket's gradients are complete on this device.
using BucketReady = std::function<void(std::int32_t bucket)>;

/// Works on one thing at a time, but for the buffers of buckets, which are reduced beside it.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Takes in what a peer has sent for an action: its samples' activations or gradients.
  virtual void take_in(const Action& receive, const SchedulePeer& from, Payload payload) = 0;

  /// What goes to a peer: its samples' activations or gradients, as many bytes as it says. The
  /// computation that made them is over.
  virtual Payload give_out(const Action& send, const SchedulePeer& to) = 0;

  /// A forward, a backward or a part of one. `ready` is given where it makes the stage's last
  /// gradients, and called for every bucket before the call returns.
  virtual void compute(const Action& action, const BucketReady& ready) = 0;

  /// The gradients of a bucket, or tied ones: `size` bytes, rounded up to whole floats. Reduced in
  /// place.
  virtual std::span<float> bucket(const Action& reduction, Bytes size) = 0;

  /// The optimizer on all of a stage's gradients, or on one bucket's.
  virtual void step(const Action& action) = 0;
};

}  // namespace dapple
