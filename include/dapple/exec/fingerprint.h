// A number that tells whether bytes have changed on their way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace dapple {

/// Any change within one word of eight bytes changes it for certain, as each step is one to one in
/// the word and in what came before; any other change but for one in 2^64 or so. Not against
/// malice. Four sums side by side keep up with memory. O(size).
inline std::uint64_t fingerprint(std::span<const std::byte> bytes) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  std::array<std::uint64_t, 4> sums{1, 2, 3, 4};
  std::size_t lane = 0;
  std::size_t position = 0;
  const auto take_in = [&](std::size_t count) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + position, count);
    sums[lane] = (sums[lane] ^ word) * kOdd;
    sums[lane] ^= sums[lane] >> 29;
    lane = (lane + 1) % sums.size();
    position += count;
  };
  while (bytes.size() - position >= kWord) take_in(kWord);
  if (position < bytes.size()) take_in(bytes.size() - position);
  std::uint64_t whole = bytes.size();
  for (const std::uint64_t sum : sums) whole = (whole ^ sum) * kOdd;
  return whole;
}

}  // namespace dapple
