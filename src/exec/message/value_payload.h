// Numbers as the bytes of a message, in the machine's own order: all devices of a job are alike.
#pragma once

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/exec/message/transport.h"

namespace dapple::exec {

template <class Value>
Payload payload_of(std::span<Value> values) {
  const std::span<const std::byte> bytes = std::as_bytes(values);
  return HostBytes(bytes.begin(), bytes.end());
}

template <class Value>
Payload payload_of(const std::vector<Value>& values) {
  return payload_of(std::span<const Value>(values));
}

/// Throws Bug unless the payload has as many numbers as `values`.
template <class Value>
void copy_values(Payload payload, std::span<Value> values) {
  check(payload.size() == values.size_bytes(), "a message has another size than its values");
  payload.bring_to_host();
  if (!values.empty()) std::memcpy(values.data(), payload.host().data(), values.size_bytes());
}

/// Throws Bug where the payload is no whole number of values.
template <class Value>
std::vector<Value> values_of(Payload payload) {
  std::vector<Value> values(payload.size() / sizeof(Value));
  copy_values(std::move(payload), std::span(values));
  return values;
}

}  // namespace dapple::exec
