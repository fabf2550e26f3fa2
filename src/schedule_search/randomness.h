// Random integers from a seed, the same with every standard library.
#pragma once

#include <cstdint>
#include <random>

namespace dapple::schedule_search {

class Randomness {
 public:
  explicit Randomness(std::uint64_t seed) : engine_(seed) {}
  /// Returns an integer from `least` to `most`, both included.
  std::int32_t roll(std::int32_t least, std::int32_t most) {
    const auto count = static_cast<std::uint64_t>(std::int64_t{most} - least + 1);
    return least + static_cast<std::int32_t>(engine_() % count);
  }
  bool chance(std::int32_t percent) { return roll(1, 100) <= percent; }
  /// Returns an integer from 1 to `most`, small ones more often: it is uniform up to a reach that
  /// doubles with each successful toss of a coin.
  std::int32_t distance(std::int32_t most) {
    std::int32_t reach = 1;
    while (reach < most && chance(50)) reach *= 2;
    return roll(1, reach < most ? reach : most);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace dapple::schedule_search
