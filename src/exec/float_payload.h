// Floats as the bytes of a message, in the machine's own order: all devices of a job are alike.
#pragma once

#include <cstring>
#include <span>

#include "dapple/core/error.h"
#include "dapple/exec/transport.h"

namespace dapple {

inline Payload payload_of(std::span<const float> values) {
  const std::span<const std::byte> bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

/// Throws Bug unless the payload has as many floats as `values`.
inline void copy_floats(const Payload& payload, std::span<float> values) {
  check(payload.size() == values.size_bytes(), "a message has another size than its values");
  if (!payload.empty()) std::memcpy(values.data(), payload.data(), payload.size());
}

}  // namespace dapple
