// A matrix product that sums each element in the order of the inner dimension, in blocks of a fixed
// size, so that every compiler produces the same bits for every processor.
#include "nn/kernels.h"

namespace dapple::nn::portable {
namespace {

// The depth of a block. A panel of the right factor of this depth fits in the cache.
constexpr std::int64_t kDepth = 512;
// The size of a tile. Its sums fit in sixteen registers of four floats.
constexpr std::int64_t kRows = 4;
constexpr std::int64_t kColumns = 8;

/// A SIMD vector of four floats.
using Four = float __attribute__((vector_size(16)));
struct Tile {
  Four sums[kRows][2];
};

/// The addressing of a factor: `across` is the step between rows of the left factor or columns of
/// the right one, and `along` the step in the inner dimension.
struct Steps {
  const float* first;
  std::int64_t across;
  std::int64_t along;
};

/// Returns the product of `kRows` rows and a panel of `kColumns` columns.
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

/// Returns the product of one row and a panel, for the rows that do not fill a tile.
Tile row_of(const Steps& left, const Four* panel, std::int64_t depth) {
  Tile tile{};
  for (std::int64_t k = 0; k < depth; ++k) {
    const float factor = left.first[k * left.along];
    tile.sums[0][0] += factor * panel[2 * k];
    tile.sums[0][1] += factor * panel[2 * k + 1];
  }
  return tile;
}

/// Copies `columns` columns of the right factor into a panel, whose other columns become zero.
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
