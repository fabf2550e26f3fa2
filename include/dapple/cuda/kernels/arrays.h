// Operations on arrays in a device's memory, besides the mathematics of layers. Each is enqueued on
// the given stream; all are limited by memory bandwidth.
#pragma once

#include <cstddef>
#include <span>

#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

void fill_with_zeros(const Stream& stream, View values);

/// Copies and, if the types differ, converts numbers, rounding to the nearest, ties to even.
/// Requires: counts are equal; Int32 and floats are converted as numbers.
void copy(const Stream& stream, View from, View to);

/// Fills `to` with the numbers of `from` again and again, converted like copy(). Requires: `from`
/// has a number.
void repeat(const Stream& stream, View from, View to);

/// Copies bytes. Requires: equal sizes.
void copy(const Stream& stream, std::span<const std::byte> from, std::span<std::byte> to);

/// Computes sum += addend in single precision. Requires: floats, and counts are equal.
void add(const Stream& stream, View addend, View sum);

/// Adds consecutive pieces of the addend, one to each of the sums, which are arrays of one length.
/// Requires: Float32; 1 to kMostPieces sums, and as many pieces.
inline constexpr std::size_t kMostPieces = 4;
void add_pieces(const Stream& stream, View addend, std::span<const View> sums);

/// Computes values *= factor. Requires: Float32.
void scale(const Stream& stream, float factor, View values);

/// Writes the sum of the squares, in double precision; the result is deterministic, and not finite
/// exactly if one of the values is not. It is enqueued on the compute stream. Requires: Float32;
/// room for a double at `result`.
void squared_norm(Device& device, View values, std::byte* result);

}  // namespace dapple::cuda
