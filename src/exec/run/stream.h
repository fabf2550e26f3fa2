// A thread that executes work items one after another.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace dapple::exec {

/// Executes work in the order in which it is added. Once an item has thrown, the remaining ones are
/// dropped.
class WorkStream {
 public:
  /// `on_failure` is called once, in the stream's thread, if an item throws.
  explicit WorkStream(std::function<void()> on_failure)
      : on_failure_(std::move(on_failure)), thread_([this] { serve(); }) {}
  ~WorkStream() {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    changed_.notify_all();
  }

  void add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(work));
    }
    changed_.notify_all();
  }

  /// Waits until all added work is done; rethrows the exception of the first item that threw.
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.empty() && !is_busy_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_closed_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      is_busy_ = true;
      lock.unlock();
      const std::exception_ptr failure = try_work(work);
      lock.lock();
      is_busy_ = false;
      if (failure) {
        failure_ = failure_ ? failure_ : failure;
        waiting_.clear();
      }
      changed_.notify_all();
    }
  }

  std::exception_ptr try_work(const std::function<void()>& work) {
    try {
      work();
      return nullptr;
    } catch (...) {
      on_failure_();
      return std::current_exception();
    }
  }

  std::function<void()> on_failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::exception_ptr failure_;
  bool is_busy_ = false;
  bool is_closed_ = false;
  // Declared last, so that it ends before the members that it uses.
  std::jthread thread_;
};

}  // namespace dapple::exec
