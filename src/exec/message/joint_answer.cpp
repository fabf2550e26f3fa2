#include "exec/message/joint_answer.h"

namespace dapple::exec {
namespace {

/// Encodes yes as a message of one byte and no as an empty message.
HostBytes encoded(bool answer) {
  return HostBytes(answer ? 1 : 0);
}

}  // namespace

bool any_says(bool answer, const std::vector<DeviceIndex>& devices, std::size_t place,
              MessageKey key, Transport& transport) {
  const DeviceIndex own = devices[place];
  const DeviceIndex first = devices.front();
  MessageKey decision = key;
  ++decision.step;
  if (place > 0) {
    key.from = decision.to = own;
    key.to = decision.from = first;
    transport.send(key, encoded(answer));
    return transport.receive(decision, {}).size() > 0;
  }
  key.to = decision.from = own;
  for (std::size_t other = 1; other < devices.size(); ++other) {
    key.from = devices[other];
    const Payload theirs = transport.receive(key, {});
    answer = answer || theirs.size() > 0;
  }
  for (std::size_t other = 1; other < devices.size(); ++other) {
    decision.to = devices[other];
    transport.send(decision, encoded(answer));
  }
  return answer;
}

}  // namespace dapple::exec
