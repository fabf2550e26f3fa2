// What one device of a running plan does with its micro-batches: the real computation, or a
// stand-in for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/message/payload.h"
#include "dapple/plan/action.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/schedule/schedule.h"

namespace dapple::exec {

/// Called for each bucket, in the order of the buckets, when its gradients are complete on this
/// device.
using BucketReady = std::function<void(std::int32_t bucket)>;

/// A time of the host's clock, or an event in a device's work whose time the host learns only once
/// that work is done. If both are given, the later one counts.
struct Mark {
  /// The time, in nanoseconds.
  std::int64_t moment = 0;
  /// The backend's number of the event, from zero; -1 if there is none.
  std::int32_t event = -1;
};

/// Parameters of which every member of a group has updated its shard, and which are to be gathered
/// on all of them.
struct Gathered {
  ReductionGroup group;
  std::unique_ptr<ReductionBuffer> parameters;
};

/// Executes the actions of one device one at a time, except that gradients are reduced
/// concurrently. A backend may return before the requested work is done, provided that all later
/// work is executed after it.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Must be called before each iteration.
  virtual void begin(std::int64_t /*iteration*/) {}

  /// Where the activations and gradients lie that the backend sends, and where it prefers to
  /// receive them.
  virtual Memory memory() const { return Memory::Host; }

  /// Stores what a peer has sent for an action: the activations or gradients of the peer's samples.
  virtual void take_in(const Action& receive, const SchedulePeer& from, Payload payload) = 0;

  /// Returns what is sent to a peer: the activations or gradients of the peer's samples, of the
  /// size that the peer states. Called after the computation that produces them.
  virtual Payload give_out(const Action& send, const SchedulePeer& to) = 0;

  /// Computes a forward, a backward, or one part of a backward. `ready` is non-empty if the action
  /// completes the gradients of a stage, and is then called for every bucket of the stage before
  /// this function returns.
  virtual void compute(const Action& action, const BucketReady& ready) = 0;

  /// Returns the complete gradients of a bucket, or tied gradients, in as many parts on all
  /// devices: together `size` bytes, rounded up to whole elements. They are reduced in place by
  /// another thread, one part after another.
  virtual std::vector<std::unique_ptr<ReductionBuffer>> gradients(const Action& reduction,
                                                                  Bytes size) = 0;

  /// Runs the optimizer on all gradients of a stage, or on those of one bucket.
  virtual void step(const Action& action) = 0;
  /// Returns what is to be gathered after a step has run, because replicas shard the optimizer's
  /// state; the same groups, in the same order, on all replicas. It is gathered by another thread.
  virtual std::vector<Gathered> gathered(const Action& /*step*/) { return {}; }
  /// Makes later work use what has been gathered. Called once all of the step has been.
  virtual void take_gathered(const Action& /*step*/) {}

  /// Marks the completion of all work enqueued on a stream so far. Called by the stream's thread.
  virtual Mark mark(Stream stream);
  /// Waits for the mark and returns its time. May be called in any order of the marks, once all
  /// actions of the iteration are over.
  virtual std::int64_t moment_of(const Mark& mark);
};

}  // namespace dapple::exec
