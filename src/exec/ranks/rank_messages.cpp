#include "exec/ranks/rank_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "dapple/exec/message/fingerprint.h"
#include "exec/message/waiting.h"

namespace dapple::exec {
namespace {

/// A message whose bytes are being sent.
struct PendingSend {
  Payload payload;
  bool has_left = false;
};

}  // namespace

void RankMessages::join(RankWire& wire, const Topology& topology,
                        const std::vector<DeviceIndex>& devices,
                        const RankTransportOptions& options) {
  wire_ = &wire;
  devices_ = devices;
  timeout_ = options.timeout;
  on_arrival_ = options.on_arrival;
  if (!options.pacing) return;
  if (!wire.is_on_one_host()) {
    throw Error(ErrorKind::Usage, "",
                {{"",
                  "expected unpaced links, or all ranks on one host, as hosts cannot share paced "
                  "links; got paced links and several hosts"}});
  }
  pacer_.emplace(topology, *options.pacing, wire.shared_words(LinkPacer::words(topology)));
}

int RankMessages::rank_of(DeviceIndex device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  check(found != devices_.end(), "a message for a device without a rank");
  return static_cast<int>(found - devices_.begin());
}

Error RankMessages::error(const MessageKey& key, const std::string& message) const {
  return {ErrorKind::Environment, names_.of(wire_->rank()), {{to_text(key.action), message}}};
}

void RankMessages::throw_if_closed() {
  const std::lock_guard lock(mutex_);
  if (is_closed_) throw JobAborted("the job was aborted");
}

void RankMessages::close() noexcept {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  mailbox_.close();
  changed_.notify_all();
}

std::int64_t RankMessages::send(const MessageKey& key, Payload payload) {
  throw_if_closed();
  payload.bring_to_host();
  const auto pending = std::make_shared<PendingSend>(PendingSend{.payload = std::move(payload)});
  const Bytes size{static_cast<std::int64_t>(pending->payload.size())};
  const int to = rank_of(key.to);
  const bool is_paced = pacer_ && key.from != key.to && size.count > 0;
  const Frame frame{.key = key,
                    .size = pending->payload.size(),
                    .fingerprint = fingerprint(pending->payload.host()),
                    .number = ++messages_,
                    .awaits_arrival_time = is_paced};
  // The bytes are transferred while the emulated link is busy.
  wire_->send(to, frame, pending->payload.host(), [this, pending] {
    const std::lock_guard lock(mutex_);
    pending->has_left = true;
    changed_.notify_all();
  });
  std::optional<std::int64_t> arrival;
  if (is_paced) {
    arrival = pacer_->pass(key, size, [this] { throw_if_closed(); });
    wire_->send(to, {.kind = NoticeKind::ArrivalTime, .moment = *arrival, .number = frame.number});
  }
  bool has_left = false;
  {
    std::unique_lock lock(mutex_);
    has_left = changed_.wait_for(lock, timeout_, [&] { return is_closed_ || pending->has_left; });
  }
  throw_if_closed();
  if (!has_left) {
    throw error(key, fmt::format("expected {} to receive a message of {} bytes within {} s, but it "
                                 "did not",
                                 names_.of(to), size.count, seconds_of(timeout_)));
  }
  sent_ += size.count;
  return arrival.value_or(clock_.now());
}

Payload RankMessages::receive(const MessageKey& key, const ExpectedMessage& expected) {
  std::optional<Mail> mail = mailbox_.take(key, timeout_);
  if (!mail) {
    throw missing_message(
        {.here = names_.of(wire_->rank()), .peer = names_.of(rank_of(key.from)), .peer_at = {}},
        key, timeout_);
  }
  if (on_arrival_) on_arrival_(key, mail->payload.host());
  verify(key, expected, *mail);
  clock_.sleep_until(mail->arrival);
  return std::move(mail->payload);
}

/// Throws Error(Environment) if another rank has sent the message, or if its bytes are not those
/// that were sent or not as many as expected.
void RankMessages::verify(const MessageKey& key, const ExpectedMessage& expected,
                          const Mail& mail) const {
  const int sender = rank_of(key.from);
  const std::string from = names_.of(sender);
  if (mail.sender != sender) {
    throw error(key, fmt::format("expected a message from {}, got one from {} in its name", from,
                                 names_.of(mail.sender)));
  }
  if (fingerprint(mail.payload.host()) != mail.fingerprint) {
    throw error(key,
                fmt::format("expected the message from {} as it was sent, got other bytes", from));
  }
  const auto size = static_cast<std::int64_t>(mail.payload.size());
  if (size != expected.size.value_or(Bytes{size}).count) {
    throw error(key,
                fmt::format("expected {} bytes from {}, got {}", expected.size->count, from, size));
  }
}

bool RankMessages::take_in(const Frame& frame, HostBytes bytes) {
  Mail mail{.payload = std::move(bytes),
            .arrival = 0,
            .fingerprint = frame.fingerprint,
            .sender = frame.from};
  if (!frame.awaits_arrival_time) return mailbox_.put(frame.key, std::move(mail));
  const std::lock_guard lock(mutex_);
  const auto held = held_.try_emplace({frame.from, frame.number}).first;
  if (held->second.mail) return false;
  held->second.mail.emplace(frame.key, std::move(mail));
  return deliver(held);
}

bool RankMessages::take_in_arrival_time(const Notice& notice) {
  const std::lock_guard lock(mutex_);
  const auto held = held_.try_emplace({notice.from, notice.number}).first;
  held->second.arrival = notice.moment;
  return deliver(held);
}

/// Delivers a message once both the message and its arrival notice are here. Returns false if there
/// already is a message with its key. Requires: the lock is held.
bool RankMessages::deliver(HeldMessages::iterator held) {
  if (!held->second.mail || !held->second.arrival) return true;
  auto& [key, mail] = *held->second.mail;
  mail.arrival = *held->second.arrival;
  const bool is_new = mailbox_.put(key, std::move(mail));
  held_.erase(held);
  return is_new;
}

}  // namespace dapple::exec
