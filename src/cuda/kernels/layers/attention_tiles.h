// Tiles of the matrices of attention, computed jointly by the threads of a block.
//
// A block has 8 warps. A tile of scores is 32 x 32: a warp has four rows of it, a thread one column
// of these rows. A tile of vectors is 32 rows of up to 128 columns: a warp has the same rows as of
// the scores, a thread every 32nd column.
#pragma once

#include <cuda_runtime.h>

#include "cuda/kernels/numbers.h"
#include "cuda/kernels/reductions.h"
#include "cuda/memory/fused_attention.h"

namespace dapple::cuda {

inline constexpr int kTile = 32;
inline constexpr int kTileWarps = 8;
inline constexpr int kRowsOfWarp = kTile / kTileWarps;
inline constexpr int kColumnsOfThread = 4;
inline constexpr int kVectorColumns = kTile * kColumnsOfThread;

/// The vectors of a head's positions, `stride` numbers apart.
template <class Number>
struct HeadRows {
  Number* first = nullptr;
  std::int64_t stride = 0;
  int count = 0;
};

/// The parts of a tile of scores and of a tile of vectors that one thread holds.
struct ScoreRows {
  float values[kRowsOfWarp] = {};
};
struct VectorRows {
  float values[kRowsOfWarp][kColumnsOfThread] = {};
};

__device__ inline int tile_lane() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
/// Returns the row in the tile of this thread's i-th row.
__device__ inline int tile_row(int i) {
  return static_cast<int>(threadIdx.x) / kWarp * kRowsOfWarp + i;
}

/// Loads 32 numbers from `column` on of each of 32 positions from `first` on; zero beyond the ends.
template <class Number>
__device__ void load_square(HeadRows<Number> rows, int first, int width, int column,
                            float (&square)[kTile][kTile + 1]) {
  const int at = column + tile_lane();
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int position = first + tile_row(i);
    const bool exists = position < rows.count && at < width;
    square[tile_row(i)][tile_lane()] =
        exists ? to_float(rows.first[position * rows.stride + at]) : 0;
  }
}

/// Computes result[row][column] = left[left_first + row] right[right_first + column] over the whole
/// width.
template <class Number>
__device__ ScoreRows multiply_rows(HeadRows<Number> left, int left_first, HeadRows<Number> right,
                                   int right_first, int width) {
  __shared__ float of_left[kTile][kTile + 1];
  __shared__ float of_right[kTile][kTile + 1];
  ScoreRows result;
  for (int column = 0; column < width; column += kTile) {
    __syncthreads();  // previous reads are complete
    load_square(left, left_first, width, column, of_left);
    load_square(right, right_first, width, column, of_right);
    __syncthreads();
    for (int k = 0; k < kTile; ++k) {
      const float other = of_right[tile_lane()][k];
      for (int i = 0; i < kRowsOfWarp; ++i) result.values[i] += of_left[tile_row(i)][k] * other;
    }
  }
  return result;
}

/// Computes sums[row] += scores[row][other] vectors[first + other], summed over the tile's columns
/// `other`, for the vector columns from `column` on.
template <class Number>
__device__ void add_products(const ScoreRows& scores, HeadRows<Number> vectors, int first,
                             int width, int column, VectorRows& sums) {
  __shared__ float of_scores[kTile][kTile + 1];
  __shared__ float of_vectors[kTile][kVectorColumns];
  __syncthreads();  // previous reads are complete
  for (int i = 0; i < kRowsOfWarp; ++i) of_scores[tile_row(i)][tile_lane()] = scores.values[i];
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int position = first + tile_row(i);
    for (int c = 0; c < kColumnsOfThread; ++c) {
      const int at = column + tile_lane() + c * kTile;
      const bool exists = position < vectors.count && at < width;
      of_vectors[tile_row(i)][tile_lane() + c * kTile] =
          exists ? to_float(vectors.first[position * vectors.stride + at]) : 0;
    }
  }
  __syncthreads();
  for (int k = 0; k < kTile; ++k) {
    for (int c = 0; c < kColumnsOfThread; ++c) {
      const float number = of_vectors[k][tile_lane() + c * kTile];
      for (int i = 0; i < kRowsOfWarp; ++i) {
        sums.values[i][c] += of_scores[tile_row(i)][k] * number;
      }
    }
  }
}

/// Writes each row times factors[i].
template <class Number>
__device__ void write_rows(const VectorRows& sums, const float (&factors)[kRowsOfWarp],
                           HeadRows<Number> to, int first, int width, int column) {
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int position = first + tile_row(i);
    for (int c = 0; c < kColumnsOfThread; ++c) {
      const int at = column + tile_lane() + c * kTile;
      if (position >= to.count || at >= width) continue;
      to.first[position * to.stride + at] = rounded_to<Number>(sums.values[i][c] * factors[i]);
    }
  }
}

}  // namespace dapple::cuda
