// What is done to arrays in a device's memory beside the layers' mathematics, each enqueued on the
// stream that is given. All are limited by the memory's speed.
#pragma once

#include <cstddef>
#include <span>

#include "dapple/cuda/tensor.h"

namespace dapple::cuda {

void fill_with_zeros(const Stream& stream, View values);

/// Rounds to the nearest, ties to even, where the types differ. Requires: counts are equal; Int32
/// and floats are converted as numbers.
void copy(const Stream& stream, View from, View to);

/// As they are. Requires: as many of both.
void copy(const Stream& stream, std::span<const std::byte> from, std::span<std::byte> to);

/// sum += addend, in single precision. Requires: floats, and counts are equal.
void add(const Stream& stream, View addend, View sum);

/// Requires: Float32.
void scale(const Stream& stream, float factor, View values);

/// Numbers of double precision that squared_norm() writes between its first and its second step.
inline constexpr std::int64_t kNormPartials = 256;

/// The sum of the squares, in double precision, to `partials[0]`, with the same result each time;
/// not finite exactly where one of the values is not. Requires: Float32; room for kNormPartials
/// doubles at `partials`.
void squared_norm(const Stream& stream, View values, std::byte* partials);

}  // namespace dapple::cuda
