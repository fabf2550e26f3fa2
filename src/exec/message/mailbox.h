// Holds the messages of one device until it receives them.
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

/// A message that has arrived.
struct Mail {
  Payload payload;
  // The time before which the message must not be received.
  std::int64_t arrival = 0;

  // The fingerprint of the bytes that were sent. Used only between processes, where bytes may be
  // corrupted.
  std::uint64_t fingerprint = 0;
  // The rank of the sender. Used only between processes, where the sender may be wrong.
  int sender = 0;
};

/// A thread-safe map from keys to messages.
class Mailbox {
 public:
  /// Stores a message. Returns false if there already is one with this key.
  [[nodiscard]] bool put(const MessageKey& key, Mail mail) {
    const std::lock_guard lock(mutex_);
    const bool is_new = mail_.emplace(key, std::move(mail)).second;
    changed_.notify_all();
    return is_new;
  }

  /// Waits for the message and removes it. Returns nothing if it does not arrive within the
  /// timeout. Throws JobAborted once the mailbox is closed.
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

  /// Closes the mailbox: all current and future calls of take() throw JobAborted.
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
