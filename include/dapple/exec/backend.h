// What one device of a running plan does with its micro-batches: the math, or what stands for it.
#pragma once

#include <cstdint>
#include <functional>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/transport.h"
#include "dapple/plan/action.h"

namespace dapple {

/// Told, in the order of the buckets, that a bucket's gradients are complete on this device.
using BucketReady = std::function<void(std::int32_t bucket)>;

/// Works on one thing at a time, but for the buffers of buckets, which are reduced beside it.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Takes in what a peer has sent for an action: a receive of activations or gradients.
  virtual void take_in(const Action& receive, DeviceIndex from, Payload payload) = 0;

  /// What goes to a peer, `size` bytes of it. The computation that made it is over.
  virtual Payload give_out(const Action& send, DeviceIndex to, Bytes size) = 0;

  /// A forward, a backward or a part of one. `ready` is given where it makes the stage's last
  /// gradients, and called for every bucket before the call returns.
  virtual void compute(const Action& action, const BucketReady& ready) = 0;

  /// The gradients of a bucket: `size` bytes. Reduced in place.
  virtual Payload& bucket(const Action& reduction, Bytes size) = 0;

  /// The optimizer on all of a stage's gradients, or on one bucket's.
  virtual void step(const Action& action) = 0;
};

}  // namespace dapple
