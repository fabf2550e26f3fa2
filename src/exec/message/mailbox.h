// Where one device's messages wait until it takes them in.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "dapple/exec/message/transport.h"

namespace dapple::exec {

struct Mail {
  Payload payload;
  std::int64_t arrival = 0;  // not to be taken in before
  // Of transports between processes, whose bytes may change, and whose senders may be wrong:
  std::uint64_t fingerprint = 0;  // of what was sent
  int sender = 0;                 // rank
};

class Mailbox {
 public:
  /// False where there is one of that key already.
  [[nodiscard]] bool put(const MessageKey& key, Mail mail) {
    const std::lock_guard lock(mutex_);
    const bool is_new = mail_.emplace(key, std::move(mail)).second;
    changed_.notify_all();
    return is_new;
  }

  /// Waits for it. Nothing if it does not come in time. Throws JobAborted.
  std::optional<Mail> take(const MessageKey& key, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    auto found = mail_.end();
    changed_.wait_for(lock, timeout,
                      [&] { return is_closed_ || (found = mail_.find(key)) != mail_.end(); });
    if (is_closed_) throw JobAborted("the job was aborted");
    if (found == mail_.end()) return std::nullopt;
    Mail mail = std::move(found->second);
    mail_.erase(found);
    return mail;
  }

  /// Whoever waits, now or later, is told that the job was aborted.
  void close() noexcept {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<MessageKey, Mail, EarlierMessage> mail_;
  bool is_closed_ = false;
};

}  // namespace dapple::exec
