// How the ranks of a job agree on who reports its failure: the first one to fail does. A rank that
// fails tells the others when, and waits for a grace period in which they may tell it of earlier
// failures. A lost rank tells nothing, so another one has to fail for it: the next rank in the
// ring, which knows the lost rank's last action, or any other if that one does not within a delay.
#pragma once

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>

#include "dapple/exec/ranks/heartbeat.h"

namespace dapple::exec {

/// The grace period in which a failing rank waits for notices of earlier failures.
inline constexpr std::chrono::milliseconds kGracePeriod(300);
/// The delay before other ranks report a peer loss, in which the next rank in the ring does so
/// first.
inline constexpr std::chrono::milliseconds kPeerLossDelay(500);

/// The failure of a rank. The order determines which of two was first: the earlier one, and of
/// those at the same time the one of the lower rank.
struct RankFailure {
  // A time of rank 0's clock.
  std::int64_t moment = 0;
  int rank = 0;

  auto operator<=>(const RankFailure&) const = default;
};

/// A rank to which the connection has ended without an announcement.
struct PeerLoss {
  int rank = 0;
  // The time of this host's clock at which it was detected.
  std::int64_t moment = 0;
};

/// What a rank does about a peer loss.
enum class LossResponse {
  // Nothing yet, or there is no loss.
  Wait,
  // This rank reports the loss.
  Report,
  // The lost rank has failed earlier and has reported the cause: this rank's silence.
  Concede,
};

/// What one rank knows of failures. Requires: calls do not run concurrently.
class FailureAgreement {
 public:
  /// Takes in this rank's failure.
  void fail(const RankFailure& own) { own_ = own; }
  /// Takes in the failure of another rank.
  void take_in(const RankFailure& other) { others_ = std::min(others_.value_or(other), other); }
  /// Whether this rank has failed, and before all others as far as it knows; after the grace period
  /// that is what all ranks say.
  bool is_first() const { return own_ && (!others_ || *own_ < *others_); }

  /// Takes in a peer loss; only the first one counts.
  void note_peer_loss(const PeerLoss& loss) {
    if (!loss_) loss_ = loss;
  }
  const std::optional<PeerLoss>& loss() const { return loss_; }
  /// Returns what to do about the loss. `previous` is the rank before this one in the ring.
  LossResponse response(std::int64_t now, int previous, const Heartbeat& heartbeat) const;

 private:
  std::optional<RankFailure> own_;
  // The earliest failure of another rank.
  std::optional<RankFailure> others_;
  std::optional<PeerLoss> loss_;
};

}  // namespace dapple::exec
