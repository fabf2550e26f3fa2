// CUDA's bfloat16, with conversions that round as the hardware does.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

struct __nv_bfloat16 {
  std::uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

/// To the nearest, ties to even.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  if (std::isnan(value)) return {0x7fff};
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t is_odd = bits >> 16U & 1U;
  return {static_cast<std::uint16_t>((bits + 0x7fffU + is_odd) >> 16U)};
}
