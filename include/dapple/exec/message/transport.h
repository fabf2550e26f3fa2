// Communication between the devices of a running plan. A transport carries messages of bytes
// between devices, in order or not; everything else is built from messages, including collectives
// if the transport has no better way.
//
// Bytes may lie in a device's memory. A transport may leave them there if the receiver expects them
// there, or copy them to the host; a receiver must accept both.
//
// Times are nanoseconds of the host's steady clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/message/payload.h"
#include "dapple/plan/action.h"
#include "dapple/profile/collective.h"

namespace dapple {
struct DeviceSchedule;
}

namespace dapple::exec {

/// Identifies a message: in one iteration, one device sends it for one action to another device. An
/// action that sends several messages, such as the steps of an all-reduce, numbers them.
struct MessageKey {
  std::int64_t iteration = 0;
  /// The action that sends the message.
  Action action;
  std::int32_t step = 0;
  DeviceIndex from;
  DeviceIndex to;
};

/// A strict order of message keys.
struct EarlierMessage {
  bool operator()(const MessageKey& a, const MessageKey& b) const {
    const auto order = [](const MessageKey& key) {
      return std::tuple(key.iteration, key.from, key.to, key.action.stage, key.action.kind,
                        key.action.index, key.step);
    };
    return order(a) < order(b);
  }
};

/// What a receiver knows of a message before it arrives.
struct ExpectedMessage {
  /// The size; empty if the receiver does not know it.
  std::optional<Bytes> size = {};
  /// Where the sender's bytes lie: all messages of one kind lie on a device, or none does.
  Memory memory = Memory::Host;
};

struct ReductionGroup;
class ReductionBuffer;
class ExchangeBuffer;

/// Another device has failed, or the job was told to stop. The first device to fail reports the
/// cause.
class JobAborted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The endpoint of one device. Each function may be called concurrently. All of them throw
/// JobAborted once any endpoint has called abort().
class Transport {
 public:
  virtual ~Transport() = default;

  /// Sends a message and returns once its last byte has left; a caller that must not block calls it
  /// on a separate thread. Returns the time at which the last byte arrives, as far as the sender
  /// can know. Messages sent by one thread leave one after another. A message leaves whether or not
  /// a receiver waits for it.
  virtual std::int64_t send(const MessageKey& key, Payload payload) = 0;

  /// Waits for the message; bytes that lie on a device need not be valid yet. Throws
  /// Error(Environment) naming the message if it does not arrive within the timeout. Requires: the
  /// message is as expected.
  virtual Payload receive(const MessageKey& key, const ExpectedMessage& expected) = 0;

  /// Does what all_reduce(), reduce_scatter() or all_gather() does with the buffer, if this
  /// transport can do so in place. Otherwise does nothing and returns false, and the elements have
  /// to be sent as messages. The answer is the same for all members. Requires: no other kind.
  virtual bool performs(CollectiveKind /*kind*/, const ReductionGroup& /*group*/,
                        const MessageKey& /*key*/, ReductionBuffer& /*buffer*/) {
    return false;
  }

  /// Does what all_to_all() does with the buffer, likewise.
  virtual bool exchanges(const std::vector<DeviceIndex>& /*members*/, const MessageKey& /*key*/,
                         ExchangeBuffer& /*buffer*/) {
    return false;
  }

  /// Waits until all devices have reached the barrier. Throws Error(Environment) if they do not
  /// within the timeout.
  virtual void barrier() = 0;

  /// Announces the action that this device executes from now on. It is named in errors if others
  /// wait for the device in vain, or if it dies.
  virtual void announce(const Action& action) noexcept = 0;

  /// Returns the bytes of all messages that this endpoint has sent so far.
  virtual Bytes sent() const = 0;

  /// Returns the offset to add to a time of this host's clock to obtain that of the first device's
  /// clock.
  virtual std::int64_t clock_offset() const { return 0; }

  /// Ends all waiting, here and on the other devices. Only the first call has an effect.
  virtual void abort() noexcept = 0;
};

/// Creates the endpoint of one device, given by its position in `devices`, on top of another
/// endpoint; returns null if that endpoint is to be used as it is.
using MakeEndOver = std::function<std::unique_ptr<Transport>(
    Transport& below, const std::vector<DeviceSchedule>& devices, std::size_t place)>;

}  // namespace dapple::exec
