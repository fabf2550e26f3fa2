// Seeded random numbers for property tests.
#pragma once

#include <cstdint>
#include <random>

namespace dapple::small {

/// Whole numbers from a seed, the same with every standard library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::int64_t roll(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool chance(std::int64_t percent) { return roll(1, 100) <= percent; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace dapple::small
