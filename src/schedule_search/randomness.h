// How searches for orders draw integers.
#pragma once

#include <cstdint>

#include "dapple/core/random.h"

namespace dapple::schedule_search {

/// Returns an integer from `least` to `most`, both included.
inline std::int32_t roll(RandomSequence& random, std::int32_t least, std::int32_t most) {
  return static_cast<std::int32_t>(random.roll(least, most));
}

/// Returns an integer from 1 to `most`, small ones more often: it is uniform up to a reach that
/// doubles with each successful toss of a coin.
inline std::int32_t short_distance(RandomSequence& random, std::int32_t most) {
  std::int32_t reach = 1;
  while (reach < most && random.chance(50)) reach *= 2;
  return roll(random, 1, reach < most ? reach : most);
}

}  // namespace dapple::schedule_search
