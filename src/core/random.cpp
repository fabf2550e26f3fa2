#include "dapple/core/random.h"

#include <cmath>
#include <numbers>

namespace dapple {
namespace {

std::uint64_t mix(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
  return bits ^ (bits >> 31);
}

/// Returns the 64-bit FNV-1a hash of the text.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3U;
  }
  return hash;
}

/// Maps random bits to a number in (0, 1], a multiple of 2^-53.
double fraction(std::uint64_t bits) {
  return static_cast<double>((bits >> 11) + 1) * 0x1p-53;
}

}  // namespace

RandomStream::RandomStream(std::uint64_t seed) : state_(mix(seed)) {}

RandomStream RandomStream::of(std::string_view name) const {
  return RandomStream(state_ ^ hash_of(name));
}

RandomStream RandomStream::of(std::uint64_t number) const {
  return RandomStream(bits(number));
}

std::uint64_t RandomStream::bits(std::uint64_t number) const {
  return mix(state_ + (number + 1) * 0x9E3779B97F4A7C15U);
}

std::int64_t RandomStream::below(std::int64_t count, std::uint64_t number) const {
  return static_cast<std::int64_t>(bits(number) % static_cast<std::uint64_t>(count));
}

std::pair<float, float> RandomStream::normal_pair(std::uint64_t pair) const {
  const double radius = std::sqrt(-2 * std::log(fraction(bits(2 * pair))));
  const double angle = 2 * std::numbers::pi * fraction(bits(2 * pair + 1));
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

}  // namespace dapple
