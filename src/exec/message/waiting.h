// Errors reported by a device whose wait has timed out.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>

#include "dapple/core/error.h"
#include "dapple/exec/message/transport.h"
#include "dapple/schedule/schedule.h"

namespace dapple::exec {

inline double seconds_of(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// Returns ": it is at 2F1", or an empty string if the action is not known.
inline std::string action_text(const std::optional<Action>& action) {
  return action ? ": it is at " + to_text(*action) : "";
}

/// A device that waits and the peer that it waits for.
struct WaitingPair {
  std::string here;
  std::string peer;
  // The peer's current action, if known.
  std::optional<Action> peer_at;
};

/// Returns the error for a message that has not arrived within the timeout.
inline Error missing_message(const WaitingPair& pair, const MessageKey& key,
                             std::chrono::nanoseconds timeout) {
  return {ErrorKind::Environment,
          pair.here,
          {{to_text(key.action),
            fmt::format("expected a message from {} within {} s, got none{}", pair.peer,
                        seconds_of(timeout), action_text(pair.peer_at))}}};
}

}  // namespace dapple::exec
