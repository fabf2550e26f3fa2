// What each member of a group sends to each other one: messages of any sizes, which both sides
// know.
#pragma once

#include <cstddef>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/exec/message/payload.h"
#include "dapple/exec/message/transport.h"

namespace dapple::exec {

/// What one member sends and takes in, by the positions of the members in the group, wherever it
/// lies. Nothing passes between a member and itself.
class ExchangeBuffer {
 public:
  virtual ~ExchangeBuffer() = default;
  virtual Memory memory() const = 0;

  /// Return the bytes of the message to a member, or from it.
  virtual std::size_t sent(std::size_t member) const = 0;
  virtual std::size_t received(std::size_t member) const = 0;
  /// Returns what is for a member.
  virtual Payload give_out(std::size_t member) = 0;
  /// Takes in what a member has sent. Throws Bug if it has another size.
  virtual void take_in(std::size_t member, Payload payload) = 0;
};

/// Exchanges the messages of a buffer among the members, of which `key` names this one as the
/// sender. Nothing is sent where a message is empty. If the transport can exchange the buffer
/// itself, it is left to it. Requires: all members call it with the same iteration, action and
/// step.
void all_to_all(const std::vector<DeviceIndex>& members, const MessageKey& key,
                ExchangeBuffer& buffer, Transport& transport);

}  // namespace dapple::exec
