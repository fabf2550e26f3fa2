// Numbers as kernels read and write them: stored in their own type, converted to single precision
// for computation, and moved several at a time if they lie at multiples of 16 bytes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "dapple/core/error.h"
#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

__host__ __device__ inline float to_float(float value) {
  return value;
}
__host__ __device__ inline float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__host__ __device__ inline float to_float(__half value) {
  return __half2float(value);
}
__host__ __device__ inline float to_float(std::int32_t value) {
  return static_cast<float>(value);
}

/// Rounds to the nearest, ties to even.
template <class Number>
__host__ __device__ Number rounded_to(float value);
template <>
__host__ __device__ inline float rounded_to<float>(float value) {
  return value;
}
template <>
__host__ __device__ inline __nv_bfloat16 rounded_to<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__host__ __device__ inline __half rounded_to<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__host__ __device__ inline std::int32_t rounded_to<std::int32_t>(float value) {
  return static_cast<std::int32_t>(value);
}

/// The maximum number of bytes that one instruction moves.
inline constexpr int kWidestAccess = 16;

/// Adjacent numbers that are moved together.
template <class Number, int kCount>
struct alignas(sizeof(Number) * kCount < kWidestAccess ? sizeof(Number) * kCount
                                                       : kWidestAccess) Pack {
  Number values[kCount];
};

template <class Number, int kCount>
__device__ Pack<Number, kCount> load(const Number* from) {
  return *reinterpret_cast<const Pack<Number, kCount>*>(from);
}
template <class Number, int kCount>
__device__ void store(Number* to, const Pack<Number, kCount>& pack) {
  *reinterpret_cast<Pack<Number, kCount>*>(to) = pack;
}

template <class Number>
inline constexpr int kPackOf = kWidestAccess / static_cast<int>(sizeof(Number));

template <class Number>
Number* numbers_in(const View& view) {
  return reinterpret_cast<Number*>(view.address);
}

/// Whether rows of `columns` numbers can be read by packs of `count`; true for an empty view at
/// null.
inline bool is_packable(const View& view, std::int64_t columns, int count) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.address);
  const auto size = static_cast<std::uintptr_t>(count * size_of(view.type));
  return columns % count == 0 && address % std::min<std::uintptr_t>(size, kWidestAccess) == 0;
}

template <class Kind>
struct Of {
  using Number = Kind;
};

/// Calls `visit(Of<float>{})`, or the same with another floating-point type. Throws Bug for Int32.
template <class Visit>
void with_floats(Type type, const Visit& visit) {
  switch (type) {
    case Type::Float32:
      return visit(Of<float>{});
    case Type::BFloat16:
      return visit(Of<__nv_bfloat16>{});
    case Type::Float16:
      return visit(Of<__half>{});
    case Type::Int32:
      break;
  }
  throw Bug("whole numbers are not computed with");
}

/// The same for all types, Int32 included.
template <class Visit>
void with_numbers(Type type, const Visit& visit) {
  if (type == Type::Int32) return visit(Of<std::int32_t>{});
  with_floats(type, visit);
}

template <int kCount>
using PackOf = std::integral_constant<int, kCount>;

/// Calls `visit(Of<Number>{}, PackOf<kCount>{})` with the number of elements to move at a time for
/// rows of `columns` numbers in the views: as many as fit one access if alignment allows, else one.
template <class Visit>
void with_packs(Type type, std::int64_t columns, std::initializer_list<View> views,
                const Visit& visit) {
  with_floats(type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    constexpr int kCount = kPackOf<Number>;
    const bool fit = std::all_of(views.begin(), views.end(), [&](const View& view) {
      return is_packable(view, columns, kCount);
    });
    if (fit) return visit(of, PackOf<kCount>{});
    visit(of, PackOf<1>{});
  });
}

}  // namespace dapple::cuda
