// Sequences of which ranks have parts: what ranks have one after another, and whole sequences.
#pragma once

#include <cstdint>

#include "cuda/kernels/layers/row_positions.h"
#include "dapple/cuda/memory/tensor.h"

namespace dapple::cuda {

/// How sequences are divided: into as many chunks as there are ranks, of which each has one, or
/// into twice as many, of which rank i of n has chunks i and 2n - 1 - i.
struct SequenceParts {
  std::int64_t samples = 0;
  std::int64_t ranks = 0;
  std::int64_t chunks_of_rank = 1;
  /// The numbers of a chunk.
  std::int64_t chunk = 0;
};

/// Copies whole sequences, sample by sample, to the parts of all samples, rank by rank, or back.
/// Requires: all views have one type and samples * ranks * chunks_of_rank * chunk numbers.
void order_by_rank(const Stream& stream, const SequenceParts& parts, View whole, View by_rank);
void order_by_sample(const Stream& stream, const SequenceParts& parts, View by_rank, View whole);

/// Some rows of every sample, of `width` numbers each.
struct OwnRows {
  RowPositions positions;
  std::int64_t rows = 0;      // that are taken
  std::int64_t sequence = 0;  // of which they are taken
  std::int64_t width = 1;
};

/// Copies these rows out of whole samples, one after another. Requires: both views have one type.
void take_rows(const Stream& stream, const OwnRows& own, View whole, View rows);
/// Adds such rows to those of a single whole sample. Requires: Float32.
void add_to_rows(const Stream& stream, const OwnRows& own, View rows, View whole);

/// Copies `columns` numbers of each row, where rows begin `stride` numbers apart on either side.
/// Requires: both views begin with the first such number, and have one floating-point type.
struct ColumnCopy {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  View from;
  std::int64_t from_stride = 0;
  View to;
  std::int64_t to_stride = 0;
};
void copy_columns(const Stream& stream, const ColumnCopy& copy);

}  // namespace dapple::cuda
