// What is done to arrays in a device's memory beside the layers' mathematics, each enqueued on the
// stream that is given. All are limited by the memory's speed.
#pragma once

#include <cstddef>
#include <span>

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

void fill_with_zeros(const Stream& stream, View values);

/// Rounds to the nearest, ties to even, where the types differ. Requires: counts are equal; Int32
/// and floats are converted as numbers.
void copy(const Stream& stream, View from, View to);

/// As they are. Requires: as many of both.
void copy(const Stream& stream, std::span<const std::byte> from, std::span<std::byte> to);

/// sum += addend, in single precision. Requires: floats, and counts are equal.
void add(const Stream& stream, View addend, View sum);

/// To each of the sums, which are arrays of one length, one piece of the addend after another.
/// Requires: Float32; 1 to kMostPieces sums, and as many pieces.
inline constexpr std::size_t kMostPieces = 4;
void add_pieces(const Stream& stream, View addend, std::span<const View> sums);

/// Requires: Float32.
void scale(const Stream& stream, float factor, View values);

/// Writes the sum of the squares, in double precision, with the same result each time; not finite
/// exactly where one of the values is not. On the compute stream. Requires: Float32; room for a
/// double at `result`.
void squared_norm(Device& device, View values, std::byte* result);

}  // namespace dapple::cuda
