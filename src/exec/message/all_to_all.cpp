#include "dapple/exec/message/all_to_all.h"

#include <cstddef>
#include <cstdint>

#include "dapple/core/quantity.h"

namespace dapple::exec {

void all_to_all(const std::vector<DeviceIndex>& members, const MessageKey& key,
                ExchangeBuffer& buffer, Transport& transport) {
  if (transport.exchanges(members, key, buffer)) return;
  const auto is_here = [&](std::size_t member) { return members[member] == key.from; };
  for (std::size_t member = 0; member < members.size(); ++member) {
    if (is_here(member) || buffer.sent(member) == 0) continue;
    MessageKey message = key;
    message.to = members[member];
    transport.send(message, buffer.give_out(member));
  }
  for (std::size_t member = 0; member < members.size(); ++member) {
    if (is_here(member) || buffer.received(member) == 0) continue;
    MessageKey message = key;
    message.from = members[member];
    message.to = key.from;
    const Bytes size{static_cast<std::int64_t>(buffer.received(member))};
    buffer.take_in(member, transport.receive(message, {.size = size, .memory = buffer.memory()}));
  }
}

}  // namespace dapple::exec
