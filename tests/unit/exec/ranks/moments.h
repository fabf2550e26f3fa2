// Moments on a clock, for the tests of ranks that wait.
#pragma once

#include <chrono>
#include <cstdint>

namespace dapple::exec {

/// A moment that long after some start.
inline std::int64_t at(std::chrono::nanoseconds time) {
  return 1'000'000'000'000 + time.count();
}

}  // namespace dapple::exec
