#include <algorithm>
#include <cmath>
#include <numbers>

#include "dapple/nn/module.h"

namespace dapple::nn {
namespace {

/// Splitmix64's mixing of 64 bits. Source: Steele, Lea and Flood 2014, figure 16, in Stafford's
/// variant 13.
std::uint64_t mix(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
  return bits ^ (bits >> 31);
}

/// FNV-1a.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char letter : text)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3U;
  return hash;
}

/// The `number`th of a stream's numbers, above zero and at most one, in steps of 2^-53.
double fraction(std::uint64_t stream, std::uint64_t number) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15U;
  return static_cast<double>((mix(stream + number * kStep) >> 11) + 1) * 0x1p-53;
}

/// Two normal numbers, independent of each other. Source: Box and Muller 1958.
std::pair<float, float> normal_pair(std::uint64_t stream, std::uint64_t pair) {
  const double radius = std::sqrt(-2 * std::log(fraction(stream, 2 * pair)));
  const double angle = 2 * std::numbers::pi * fraction(stream, 2 * pair + 1);
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

}  // namespace

void initialize(const ParameterSpec& parameter, const std::string& name, std::uint64_t seed,
                std::span<float> values) {
  const Initial& initial = parameter.initial;
  if (initial.kind == Initial::Kind::Constant) {
    std::fill(values.begin(), values.end(), initial.value);
    return;
  }
  const std::uint64_t stream = mix(mix(seed) ^ hash_of(name));
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const auto [first, second] = normal_pair(stream, i / 2);
    values[i] = initial.value * first;
    if (i + 1 < values.size()) values[i + 1] = initial.value * second;
  }
}

}  // namespace dapple::nn
