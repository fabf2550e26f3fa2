// The clock of a running plan, in nanoseconds of the steady clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace dapple::exec {

inline std::int64_t monotonic_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Returns at once if the time has passed.
inline void sleep_until(std::int64_t moment) {
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(moment)));
}

}  // namespace dapple::exec
