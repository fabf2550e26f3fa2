// A product of whose every number the additions are made in the order of the depth, in pieces of a
// fixed size: the same bits by any compiler for any processor.
#include "nn/kernels.h"

namespace dapple::nn::portable {
namespace {

constexpr std::int64_t kDepth =
    512;                           // of a piece; what is copied of the right factor fits in a cache
constexpr std::int64_t kRows = 4;  // of a tile, whose sums fit in sixteen registers of four numbers
constexpr std::int64_t kColumns = 8;

/// Four sums side by side.
using Four = float __attribute__((vector_size(16)));
struct Tile {
  Four sums[kRows][2];
};

/// A factor as its numbers are reached: those of a row, or column, and those along the depth.
struct Steps {
  const float* first;
  std::int64_t across;
  std::int64_t along;
};

/// `kRows` rows by a panel of `kColumns` columns.
Tile tile_of(const Steps& left, const Four* panel, std::int64_t depth) {
  Tile tile{};
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t row = 0; row < kRows; ++row) {
      const float factor = left.first[row * left.across + k * left.along];
      tile.sums[row][0] += factor * panel[2 * k];
      tile.sums[row][1] += factor * panel[2 * k + 1];
    }
  }
  return tile;
}

/// Rows that do not fill a tile.
Tile row_of(const Steps& left, const Four* panel, std::int64_t depth) {
  Tile tile{};
  for (std::int64_t k = 0; k < depth; ++k) {
    const float factor = left.first[k * left.along];
    tile.sums[0][0] += factor * panel[2 * k];
    tile.sums[0][1] += factor * panel[2 * k + 1];
  }
  return tile;
}

/// Columns that do not fill a panel are zero.
void fill_panel(const Steps& right, std::int64_t columns, std::int64_t depth, Four* panel) {
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t column = 0; column < kColumns; ++column) {
      panel[2 * k + column / 4][column % 4] =
          column < columns ? right.first[column * right.across + k * right.along] : 0.0F;
    }
  }
}

void add_tile(const Tile& tile, std::int64_t rows, std::int64_t columns, float* to,
              std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      to[row * stride + column] += tile.sums[row][column / 4][column % 4];
    }
  }
}

Steps behind(const Steps& steps, std::int64_t across, std::int64_t along) {
  return {steps.first + across * steps.across + along * steps.along, steps.across, steps.along};
}

}  // namespace

void add_product(const StridedMatrix& left, const StridedMatrix& right, const ProductSum& to) {
  const Steps rows =
      left.transposed ? Steps{left.first, 1, left.stride} : Steps{left.first, left.stride, 1};
  const Steps columns =
      right.transposed ? Steps{right.first, right.stride, 1} : Steps{right.first, 1, right.stride};
  Four panel[2 * kDepth];
  for (std::int64_t from = 0; from < to.depth; from += kDepth) {
    const std::int64_t depth = to.depth - from < kDepth ? to.depth - from : kDepth;
    for (std::int64_t column = 0; column < to.columns; column += kColumns) {
      const std::int64_t width = to.columns - column < kColumns ? to.columns - column : kColumns;
      fill_panel(behind(columns, column, from), width, depth, panel);
      std::int64_t row = 0;
      for (; row + kRows <= to.rows; row += kRows) {
        add_tile(tile_of(behind(rows, row, from), panel, depth), kRows, width,
                 to.first + row * to.stride + column, to.stride);
      }
      for (; row < to.rows; ++row) {
        add_tile(row_of(behind(rows, row, from), panel, depth), 1, width,
                 to.first + row * to.stride + column, to.stride);
      }
    }
  }
}

}  // namespace dapple::nn::portable
