// CUDA's half, with conversions that round as the hardware does.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

struct __half {
  std::uint16_t bits;
};

inline float __half2float(__half value) {
  const float sign = (value.bits & 0x8000U) != 0 ? -1.0F : 1.0F;
  const int exponent = value.bits >> 10U & 0x1fU;
  const auto fraction = static_cast<float>(value.bits & 0x3ffU);
  if (exponent == 0x1f) return sign * (fraction == 0 ? INFINITY : NAN);
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

/// To the nearest, ties to even; infinite from 65,520 on.
inline __half __float2half_rn(float value) {
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 16U & 0x8000U;
  if (std::isnan(value)) return {0x7fff};
  const float size = std::fabs(value);
  std::uint32_t bits = 0x7c00;
  if (size < 65'520) {
    // A unit of the last place: 2^-24 below the least normal number. nearbyint() rounds to even.
    const int exponent = size < std::ldexp(1.0F, -14) ? -14 : std::ilogb(size);
    const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
    bits = units + (static_cast<std::uint32_t>(exponent + 14) << 10U);
  }
  return {static_cast<std::uint16_t>(sign | bits)};
}
