#include "cuda/kernels/layers/sequence_parts.h"

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/threads.h"
#include "dapple/core/error.h"

namespace dapple::cuda {
namespace {

/// Returns where a number of whole sequences is, where the parts of one rank follow those of
/// another.
__device__ std::int64_t place_by_rank(const SequenceParts& parts, std::int64_t number) {
  const std::int64_t chunks = parts.ranks * parts.chunks_of_rank;
  const std::int64_t of_all = number / parts.chunk;
  const std::int64_t sample = of_all / chunks;
  const std::int64_t chunk = of_all % chunks;
  const bool is_second = chunk >= parts.ranks;
  const std::int64_t rank = is_second ? chunks - 1 - chunk : chunk;
  const std::int64_t place =
      (rank * parts.samples + sample) * parts.chunks_of_rank + (is_second ? 1 : 0);
  return place * parts.chunk + number % parts.chunk;
}

template <class Number>
__global__ void by_rank_kernel(SequenceParts parts, std::int64_t count, const Number* whole,
                               Number* by_rank) {
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    by_rank[place_by_rank(parts, i)] = whole[i];
  }
}

template <class Number>
__global__ void by_sample_kernel(SequenceParts parts, std::int64_t count, const Number* by_rank,
                                 Number* whole) {
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    whole[i] = by_rank[place_by_rank(parts, i)];
  }
}

/// Returns where a number of the rows is in whole samples.
__device__ std::int64_t place_in_whole(const OwnRows& own, std::int64_t number) {
  const std::int64_t row = number / own.width;
  const std::int64_t sample = row / own.rows;
  return (sample * own.sequence + own.positions.of(static_cast<std::int32_t>(row % own.rows))) *
             own.width +
         number % own.width;
}

template <class Number>
__global__ void take_kernel(OwnRows own, std::int64_t count, const Number* whole, Number* rows) {
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    rows[i] = whole[place_in_whole(own, i)];
  }
}

__global__ void add_rows_kernel(OwnRows own, std::int64_t count, const float* rows, float* whole) {
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    whole[place_in_whole(own, i)] += rows[i];
  }
}

template <class Number>
__global__ void columns_kernel(std::int64_t count, std::int64_t columns, const Number* from,
                               std::int64_t from_stride, Number* to, std::int64_t to_stride) {
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    const std::int64_t row = i / columns;
    to[row * to_stride + i % columns] = from[row * from_stride + i % columns];
  }
}

void check_size(const SequenceParts& parts, const View& whole, const View& by_rank) {
  const std::int64_t count = parts.samples * parts.ranks * parts.chunks_of_rank * parts.chunk;
  check(whole.count == count && by_rank.count == count && whole.type == by_rank.type,
        "parts of sequences are not these sequences");
}

}  // namespace

void order_by_rank(const Stream& stream, const SequenceParts& parts, View whole, View by_rank) {
  check_size(parts, whole, by_rank);
  with_floats(whole.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(by_rank_kernel<Number>, grid_for(whole.count), stream, parts, whole.count,
           numbers_in<Number>(whole), numbers_in<Number>(by_rank));
  });
}

void order_by_sample(const Stream& stream, const SequenceParts& parts, View by_rank, View whole) {
  check_size(parts, whole, by_rank);
  with_floats(whole.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(by_sample_kernel<Number>, grid_for(whole.count), stream, parts, whole.count,
           numbers_in<Number>(by_rank), numbers_in<Number>(whole));
  });
}

void take_rows(const Stream& stream, const OwnRows& own, View whole, View rows) {
  with_numbers(rows.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(take_kernel<Number>, grid_for(rows.count), stream, own, rows.count,
           numbers_in<Number>(whole), numbers_in<Number>(rows));
  });
}

void add_to_rows(const Stream& stream, const OwnRows& own, View rows, View whole) {
  check(rows.count == own.rows * own.width, "rows of several samples are added to one");
  launch(add_rows_kernel, grid_for(rows.count), stream, own, rows.count, numbers_in<float>(rows),
         numbers_in<float>(whole));
}

void copy_columns(const Stream& stream, const ColumnCopy& copy) {
  const std::int64_t count = copy.rows * copy.columns;
  with_floats(copy.to.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(columns_kernel<Number>, grid_for(count), stream, count, copy.columns,
           numbers_in<Number>(copy.from), copy.from_stride, numbers_in<Number>(copy.to),
           copy.to_stride);
  });
}

}  // namespace dapple::cuda
