// How many random instances a test tries.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace dapple::small {

/// How many of `count` random instances to try: the environment's DAPPLE_TEST_SCALE times as many,
/// and a tenth of that where sanitizers make each as much slower.
inline int scaled(int count) {
  const char* text = std::getenv("DAPPLE_TEST_SCALE");
  const int scale = std::max(text == nullptr ? 1 : std::atoi(text), 1);
#ifdef DAPPLE_SANITIZED
  return (scale * count + 9) / 10;
#else
  return scale * count;
#endif
}

}  // namespace dapple::small
