// Runs independent tasks on several threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace dapple {

/// A number of threads that nothing runs on, for whoever has work for one more. All members may be
/// called by several threads.
class IdleThreads {
 public:
  explicit IdleThreads(int count = 0) : count_(count) {}

  /// Takes one thread. Returns whether there was one.
  bool take() {
    const std::scoped_lock lock(mutex_);
    if (count_ <= 0) return false;
    --count_;
    return true;
  }
  /// Gives one back, or adds one.
  void give() {
    const std::scoped_lock lock(mutex_);
    ++count_;
  }

 private:
  std::mutex mutex_;
  int count_;
};

/// Calls work(i) once for every i in [0, count) on up to `threads` threads, the caller's included,
/// and returns when all calls are done. If calls threw, the exception of the lowest i is then
/// rethrown. `threads` below 1 counts as 1. Threads without further calls are added to `idle`
/// meanwhile, unless it is null.
/// Requires: work(i) may run concurrently with work(j), and its result does not depend on the
/// order of the calls.
template <class Work>
void parallel_for(std::size_t count, int threads, const Work& work, IdleThreads* idle = nullptr) {
  std::vector<std::exception_ptr> failures(count);
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) { failures[i] = std::current_exception(); }
    }
    if (idle != nullptr) idle->give();
  };
  {
    std::vector<std::jthread> others;
    const auto wanted = static_cast<std::size_t>(threads < 1 ? 1 : threads);
    for (std::size_t t = 1; t < wanted && t < count; ++t) others.emplace_back(run);
    for (std::size_t t = count; t < wanted && idle != nullptr; ++t) idle->give();
    run();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace dapple
