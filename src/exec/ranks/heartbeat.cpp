#include "dapple/exec/ranks/heartbeat.h"

#include <algorithm>
#include <utility>

#include "exec/message/announced.h"

namespace dapple::exec {
namespace {

using std::chrono::nanoseconds;

/// The delay after which a change of the current action is reported.
constexpr nanoseconds kActionChangeDelay = std::chrono::milliseconds(50);
/// The time in which a rank that was stopped and has resumed notices which peers are gone.
constexpr nanoseconds kResumeGracePeriod = std::chrono::seconds(1);

}  // namespace

void Heartbeat::start(nanoseconds timeout) {
  timeout_ = timeout;
  interval_ =
      std::clamp<nanoseconds>(timeout / 20, std::chrono::milliseconds(1), std::chrono::seconds(1));
}

std::optional<Notice> Heartbeat::due(std::int64_t now, std::uint64_t action) {
  if (interval_.count() == 0) return std::nullopt;
  const nanoseconds pause =
      action == last_action_ ? interval_ : std::min(interval_, kActionChangeDelay);
  if (now - last_sent_ < pause.count()) return std::nullopt;
  last_sent_ = now;
  last_action_ = action;
  return Notice{.kind = NoticeKind::Heartbeat, .action = action};
}

void Heartbeat::take_in(std::int64_t now, std::uint64_t action) {
  last_received_ = now;
  previous_action_ = AnnouncedAction::unpacked(action);
}

bool Heartbeat::is_previous_missing(std::int64_t now) {
  if (interval_.count() == 0) return false;
  const std::int64_t elapsed = now - std::exchange(last_turn_, now).value_or(now);
  if (!last_received_) return false;
  if (elapsed > loss_timeout().count()) resumed_at_ = now;
  if (elapsed > 3 * interval_.count()) last_received_ = now;
  return now - *last_received_ >= loss_timeout().count();
}

bool Heartbeat::has_caused_loss_at(std::int64_t moment) const {
  return resumed_at_ && moment < *resumed_at_ + kResumeGracePeriod.count();
}

}  // namespace dapple::exec
