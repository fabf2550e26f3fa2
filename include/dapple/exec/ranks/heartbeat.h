// The heartbeats by which the ranks of a job watch each other. The ranks form a ring: each one
// tells the next one at short intervals that it is alive, and watches the previous one.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "dapple/exec/ranks/rank_wire.h"
#include "dapple/plan/action.h"

namespace dapple::exec {

/// Decides when a rank sends a heartbeat, and when the heartbeats of the previous rank are missing.
/// Times are those of this host's clock. Requires: calls do not run concurrently.
class Heartbeat {
 public:
  /// Begins to send heartbeats, and to judge those of the previous rank.
  void start(std::chrono::nanoseconds timeout);

  /// Returns the heartbeat to be sent now, or nothing if none is due. The packed action goes with
  /// it. One is due after an interval of timeout / 20, but at least 1 ms and at most 1 s, or 50 ms
  /// after the last one if the action has changed since.
  std::optional<Notice> due(std::int64_t now, std::uint64_t action);

  /// Takes in a heartbeat of the previous rank.
  void take_in(std::int64_t now, std::uint64_t action);

  /// Returns the silence after which a rank is missing, 0.9 x timeout.
  std::chrono::nanoseconds loss_timeout() const { return timeout_ / 10 * 9; }

  /// Returns whether the previous rank has been silent for loss_timeout() since its last heartbeat.
  /// A rank that has never sent one is not missing. To be called in every turn of the wire: a long
  /// time between two calls means that this process itself was stopped, and then the previous rank
  /// gets its time anew.
  bool is_previous_missing(std::int64_t now);

  /// Returns the last known action of the previous rank.
  const std::optional<Action>& previous_action() const { return previous_action_; }

  /// Whether a peer that was lost at this moment ended because of this rank's silence: this rank
  /// was stopped for so long that its heartbeats were missed, and had not been back for a second
  /// yet.
  bool has_caused_loss_at(std::int64_t moment) const;

 private:
  std::chrono::nanoseconds timeout_{0};
  // The interval between two heartbeats; 0 before start().
  std::chrono::nanoseconds interval_{0};
  // The time of the last heartbeat sent.
  std::int64_t last_sent_ = 0;
  // The action in that heartbeat, packed.
  std::uint64_t last_action_ = 0;
  // The time of the last heartbeat of the previous rank; empty if there was none yet.
  std::optional<std::int64_t> last_received_;
  std::optional<Action> previous_action_;
  // The time of the last call of is_previous_missing().
  std::optional<std::int64_t> last_turn_;
  // The time at which this rank resumed after it had been stopped for longer than loss_timeout().
  std::optional<std::int64_t> resumed_at_;
};

}  // namespace dapple::exec
