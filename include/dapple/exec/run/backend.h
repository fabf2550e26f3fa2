// What one device of a running plan does with its micro-batches: the math, or what stands for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "dapple/core/quantity.h"
#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/message/payload.h"
#include "dapple/plan/action.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/schedule/schedule.h"

namespace dapple::exec {

/// Told, in the order of the buckets, that a bucket's gradients are complete on this device.
using BucketReady = std::function<void(std::int32_t bucket)>;

/// A moment of the host's clock, or one of a device's work that the host knows only once that work
/// is done: then whichever is later.
struct Mark {
  std::int64_t moment = 0;
  std::int32_t event = -1;  // the backend's number of it, from zero
};

/// Works on one thing at a time, but for gradients, which are reduced beside it. A backend may
/// return before what it was asked for is done, if what it is asked for next comes after that.
class Backend {
 public:
  virtual ~Backend() = default;

  /// To be called before each iteration.
  virtual void begin(std::int64_t /*iteration*/) {}

  /// Where activations and gradients lie that it gives out, and that it would rather take in.
  virtual Memory memory() const { return Memory::Host; }

  /// Takes in what a peer has sent for an action: its samples' activations or gradients.
  virtual void take_in(const Action& receive, const SchedulePeer& from, Payload payload) = 0;

  /// What goes to a peer: its samples' activations or gradients, as many bytes as it says. The
  /// computation that made them is over.
  virtual Payload give_out(const Action& send, const SchedulePeer& to) = 0;

  /// A forward, a backward or a part of one. `ready` is given where it makes the stage's last
  /// gradients, and called for every bucket before the call returns.
  virtual void compute(const Action& action, const BucketReady& ready) = 0;

  /// The gradients of a bucket, or tied ones, which are complete: `size` bytes, rounded up to whole
  /// numbers. They are reduced in place, in another thread.
  virtual std::unique_ptr<ReductionBuffer> gradients(const Action& reduction, Bytes size) = 0;

  /// The optimizer on all of a stage's gradients, or on one bucket's.
  virtual void step(const Action& action) = 0;

  /// When all is done that a stream has been given so far. Called by the stream's thread.
  virtual Mark mark(Stream stream);
  /// Waits for it. To be asked once an iteration's actions are over, in any order.
  virtual std::int64_t moment_of(const Mark& mark);
};

}  // namespace dapple::exec
