// What the devices of a running plan say to each other. A transport carries messages of bytes
// between devices, in order or not; everything else is made of these, collectives too where the
// transport knows no better way.
//
// Bytes may lie in a device's memory. A transport may leave them there, if the receiver expects
// them so, or bring them to the host, where a receiver has to take them as well.
//
// Moments are steady-clock nanoseconds of the host.
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

namespace dapple {
struct DeviceSchedule;
}

namespace dapple::exec {

/// Which message: sent once in an iteration by one device for one action to another. An action that
/// sends several, as the steps of an all-reduce, numbers them.
struct MessageKey {
  std::int64_t iteration = 0;
  Action action;  // that sends it
  std::int32_t step = 0;
  DeviceIndex from;
  DeviceIndex to;
};

/// An order in which to keep messages.
struct EarlierMessage {
  bool operator()(const MessageKey& a, const MessageKey& b) const {
    const auto order = [](const MessageKey& key) {
      return std::tuple(key.iteration, key.from, key.to, key.action.stage, key.action.kind,
                        key.action.index, key.step);
    };
    return order(a) < order(b);
  }
};

/// What a receiver knows of a message before it comes.
struct ExpectedMessage {
  std::optional<Bytes> size = {};  // any, where it does not know
  /// Where the sender's bytes lie: on a device for all messages of a kind, or for none.
  Memory memory = Memory::Host;
};

struct ReductionGroup;
class ReductionBuffer;

/// Another device has failed, or the job is told to stop; who is the first to fail says why.
class JobAborted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One device's end. Each function may be called from several threads at a time. All throw
/// JobAborted once any end has called abort().
class Transport {
 public:
  virtual ~Transport() = default;

  /// Returns once the last byte has left: whoever must not wait calls it on a thread of its own.
  /// The moment at which the last byte is there, as far as the sender can know. Messages that one
  /// thread sends leave one after another. Nobody needs to wait for a message for it to leave.
  virtual std::int64_t send(const MessageKey& key, Payload payload) = 0;

  /// Waits for the message; what lies on a device need not be there yet. Throws Error(Environment)
  /// naming it if it does not come in time. Requires: it is as expected.
  virtual Payload receive(const MessageKey& key, const ExpectedMessage& expected) = 0;

  /// Sums the numbers up over the group as all_reduce() does, if this transport can do so where
  /// they lie; false, and nothing is done, if they have to be sent as messages. The same answer for
  /// all members.
  virtual bool reduces(const ReductionGroup& /*group*/, const MessageKey& /*key*/,
                       ReductionBuffer& /*buffer*/) {
    return false;
  }

  /// Waits until all devices are here. Throws Error(Environment) if they do not come in time.
  virtual void barrier() = 0;

  /// What this device is at from now on: named where others wait for it in vain, or it dies.
  virtual void announce(const Action& action) noexcept = 0;

  /// Bytes that this end has sent so far, all messages together.
  virtual Bytes sent() const = 0;

  /// What has to be added to a moment of this host's clock for one of the first device's.
  virtual std::int64_t clock_offset() const { return 0; }

  /// Ends all waiting, here and elsewhere. Never throws; the first call counts.
  virtual void abort() noexcept = 0;
};

/// The end of one of the devices, by its place among them, that uses another one's; null where that
/// is to be used as it is.
using MakeEndOver = std::function<std::unique_ptr<Transport>(
    Transport& below, const std::vector<DeviceSchedule>& devices, std::size_t place)>;

}  // namespace dapple::exec
