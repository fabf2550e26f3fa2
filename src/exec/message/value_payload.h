// Conversion between numbers and message bytes in native byte order, which all devices of a job
// share.
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

/// Copies the payload's numbers to `values`. Throws Bug unless there are as many.
template <class Value>
void copy_values(Payload payload, std::span<Value> values) {
  check(payload.size() == values.size_bytes(), "a message has another size than its values");
  payload.bring_to_host();
  if (!values.empty()) std::memcpy(values.data(), payload.host().data(), values.size_bytes());
}

/// Returns the payload's numbers. Throws Bug if its size is no multiple of a value's size.
template <class Value>
std::vector<Value> values_of(Payload payload) {
  std::vector<Value> values(payload.size() / sizeof(Value));
  copy_values(std::move(payload), std::span(values));
  return values;
}

}  // namespace dapple::exec
