// How many random instances a test tries, and from which seed on.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace dapple::small {

/// How many of `count` random instances to try: the environment's DAPPLE_TEST_SCALE times as many
/// (1 if it is unset or no positive number), and a tenth of that where sanitizers make each as much
/// slower; rounded up.
inline int scaled(int count) {
  const char* text = std::getenv("DAPPLE_TEST_SCALE");
  double scale = text == nullptr ? 1 : std::atof(text);
  if (!(scale > 0)) scale = 1;
#ifdef DAPPLE_SANITIZED
  scale /= 10;
#endif
  // A tenth is no binary fraction: a count that should be whole may lie a little above.
  return static_cast<int>(std::ceil(scale * count - 1e-6));
}

/// The seed to start from: the environment's DAPPLE_TEST_SEED, or `seed` if that is unset.
inline std::uint64_t seeded(std::uint64_t seed) {
  const char* text = std::getenv("DAPPLE_TEST_SEED");
  return text == nullptr ? seed : std::strtoull(text, nullptr, 10);
}

}  // namespace dapple::small
