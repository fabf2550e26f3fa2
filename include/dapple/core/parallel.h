// Runs independent tasks on several threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace dapple {

/// Calls work(i) once for every i in [0, count) on up to `threads` threads, the caller's included,
/// and returns when all calls are done. If calls threw, the exception of the lowest i is then
/// rethrown. `threads` below 1 counts as 1.
/// Requires: work(i) may run concurrently with work(j), and its result does not depend on the
/// order of the calls.
template <class Work>
void parallel_for(std::size_t count, int threads, const Work& work) {
  std::vector<std::exception_ptr> failures(count);
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) { failures[i] = std::current_exception(); }
    }
  };
  {
    std::vector<std::jthread> others;
    const auto wanted = static_cast<std::size_t>(threads < 1 ? 1 : threads);
    for (std::size_t t = 1; t < wanted && t < count; ++t) others.emplace_back(run);
    run();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace dapple
