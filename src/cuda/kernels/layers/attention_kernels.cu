#include "cuda/kernels/layers/attention_kernels.h"

#include <cmath>
#include <type_traits>

#include "cuda/kernels/launch.h"
#include "cuda/kernels/layers/attention_tiles.h"

namespace dapple::cuda {
namespace {

/// The number of resident blocks for which the compiler must leave registers. It spills none for
/// whole sequences, and a few numbers in the backward for parts of them.
[[maybe_unused]] constexpr int kBlocksPerMultiprocessor = 2;

/// The arguments of all kernels. A block processes 32 rows of a head of a sample (blockIdx.x) and
/// 128 columns of their vectors (blockIdx.y). Keys and values, and their gradients, are those of
/// whole sequences, and so are queries if `kIsWhole`; otherwise these are of some positions.
template <class Kind, bool kIsWhole>
struct HeadArrays {
  using Number = Kind;
  // The vectors, with all heads each, in which a row of queries, or of keys, begins.
  static constexpr int kQueryParts = kIsWhole ? 3 : 1;
  static constexpr int kKeyParts = kIsWhole ? 3 : 2;

  int queries = 0;
  int keys = 0;
  int heads = 0;
  int width = 0;
  int tiles = 0;  // of 32 rows
  bool is_causal = false;
  float scale = 1;
  RowPositions positions;  // of queries
  const Number* query = nullptr;
  const Number* key = nullptr;
  const Number* output = nullptr;
  float* log_sums = nullptr;
  const Number* output_gradient = nullptr;

  __device__ int first() const { return static_cast<int>(blockIdx.x) % tiles * kTile; }
  __device__ int column() const { return static_cast<int>(blockIdx.y) * kVectorColumns; }
  __device__ std::int64_t head() const { return static_cast<int>(blockIdx.x) / tiles; }
  __device__ int key_count() const { return kIsWhole ? queries : keys; }

  /// Returns the rows of the block's head in [samples, rows, parts, heads, width].
  template <class Any>
  __device__ HeadRows<Any> rows_of(Any* numbers, int rows, int part, int parts) const {
    const std::int64_t hidden = static_cast<std::int64_t>(heads) * width;
    const std::int64_t sample = head() / heads;
    return {numbers + sample * rows * parts * hidden + part * hidden + head() % heads * width,
            parts * hidden, rows};
  }
  template <class Any>
  __device__ HeadRows<Any> query_rows(Any* numbers) const {
    return rows_of(numbers, queries, 0, kQueryParts);
  }
  template <class Any>
  __device__ HeadRows<Any> key_rows(Any* numbers) const {
    return rows_of(numbers, key_count(), 0, kKeyParts);
  }
  template <class Any>
  __device__ HeadRows<Any> value_rows(Any* keys_values) const {
    return rows_of(keys_values, key_count(), 1, kKeyParts);
  }
  template <class Any>
  __device__ HeadRows<Any> output_rows(Any* numbers) const {
    return rows_of(numbers, queries, 0, 1);
  }
  __device__ float* head_log_sums() const { return log_sums + head() * queries; }

  __device__ int position(int query_row) const {
    return kIsWhole ? query_row : positions.of(query_row);
  }
  __device__ bool sees(int query_row, int key_row) const {
    return query_row < queries && key_row < key_count() &&
           (!is_causal || key_row <= position(query_row));
  }
  /// Returns the end of the keys that some of 32 queries see.
  __device__ int end_of_keys(int first_query) const {
    if (!is_causal) return key_count();
    const int end = first_query + kTile < queries ? first_query + kTile : queries;
    return position(end - 1) + 1;
  }
  /// Returns the first query that sees some of the keys from `first_key` on.
  __device__ int first_query_of(int first_key) const {
    if (!is_causal) return 0;
    return kIsWhole ? first_key : positions.first_row_from(first_key);
  }
};

template <class Arrays>
__global__ void __launch_bounds__(kTileWarps* kWarp, kBlocksPerMultiprocessor)
    forward_kernel(Arrays arrays, typename Arrays::Number* output) {
  const int first = arrays.first();
  const int end = arrays.end_of_keys(first);
  float largest[kRowsOfWarp];
  float sums[kRowsOfWarp] = {};
  for (float& value : largest) value = -INFINITY;
  VectorRows attended;
  for (int key = 0; key < end; key += kTile) {
    ScoreRows scores = multiply_rows(arrays.query_rows(arrays.query), first,
                                     arrays.key_rows(arrays.key), key, arrays.width);
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const bool is_seen = arrays.sees(first + tile_row(i), key + tile_lane());
      const float score = is_seen ? arrays.scale * scores.values[i] : -INFINITY;
      const float new_largest = fmaxf(largest[i], warp_max(score));
      // RowLayout beyond the sequence attend to nothing and have no largest score.
      const float share = is_seen ? expf(score - new_largest) : 0;
      const float shrinking = new_largest == -INFINITY ? 1 : expf(largest[i] - new_largest);
      sums[i] = sums[i] * shrinking + warp_sum(share);
      for (float& number : attended.values[i]) number *= shrinking;
      largest[i] = new_largest;
      scores.values[i] = share;
    }
    add_products(scores, arrays.value_rows(arrays.key), key, arrays.width, arrays.column(),
                 attended);
  }
  float inverses[kRowsOfWarp];
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int position = first + tile_row(i);
    inverses[i] = sums[i] > 0 ? 1 / sums[i] : 0;
    if (position < arrays.queries && tile_lane() == 0 && blockIdx.y == 0) {
      arrays.head_log_sums()[position] = largest[i] + logf(sums[i]);
    }
  }
  write_rows(attended, inverses, arrays.output_rows(output), first, arrays.width, arrays.column());
}

/// Computes means[head][position] = output gradient times output, which softmax's backward
/// subtracts from the gradient of each probability. One warp per row.
template <class Arrays>
__global__ void mean_kernel(Arrays arrays, std::int64_t rows, float* means) {
  const std::int64_t row =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (row >= rows) return;
  // RowLayout are those of [samples, heads, queries], vectors those of [samples, queries, heads].
  const std::int64_t queries = arrays.queries;
  const std::int64_t head = row / queries;
  const std::int64_t query = row % queries;
  const std::int64_t sample = head / arrays.heads;
  const std::int64_t begin =
      ((sample * queries + query) * arrays.heads + head % arrays.heads) * arrays.width;
  float sum = 0;
  for (int i = tile_lane(); i < arrays.width; i += kWarp) {
    sum += to_float(arrays.output[begin + i]) * to_float(arrays.output_gradient[begin + i]);
  }
  sum = warp_sum(sum);
  if (tile_lane() == 0) means[row] = sum;
}

/// Returns the gradient of a score from that of its probability (`share`).
__device__ float score_gradient(float share, float share_gradient, float mean, float scale) {
  return scale * share * (share_gradient - mean);
}

template <class Arrays>
__global__ void __launch_bounds__(kTileWarps* kWarp, kBlocksPerMultiprocessor)
    query_gradient_kernel(Arrays arrays, const float* means,
                          typename Arrays::Number* query_gradient) {
  const int first = arrays.first();
  const int end = arrays.end_of_keys(first);
  const float* head_means = means + arrays.head() * arrays.queries;
  VectorRows sums;
  for (int key = 0; key < end; key += kTile) {
    const ScoreRows scores = multiply_rows(arrays.query_rows(arrays.query), first,
                                           arrays.key_rows(arrays.key), key, arrays.width);
    ScoreRows gradients = multiply_rows(arrays.output_rows(arrays.output_gradient), first,
                                        arrays.value_rows(arrays.key), key, arrays.width);
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const int query = first + tile_row(i);
      if (!arrays.sees(query, key + tile_lane())) {
        gradients.values[i] = 0;
        continue;
      }
      const float share = expf(arrays.scale * scores.values[i] - arrays.head_log_sums()[query]);
      gradients.values[i] =
          score_gradient(share, gradients.values[i], head_means[query], arrays.scale);
    }
    add_products(gradients, arrays.key_rows(arrays.key), key, arrays.width, arrays.column(), sums);
  }
  float ones[kRowsOfWarp];
  for (float& one : ones) one = 1;
  write_rows(sums, ones, arrays.query_rows(query_gradient), first, arrays.width, arrays.column());
}

/// In this kernel the rows of tiles are keys and the columns queries.
template <class Arrays>
__global__ void __launch_bounds__(kTileWarps* kWarp, kBlocksPerMultiprocessor)
    key_value_gradient_kernel(Arrays arrays, const float* means,
                              typename Arrays::Number* key_gradient) {
  const int first = arrays.first();
  const float* head_means = means + arrays.head() * arrays.queries;
  VectorRows of_keys;
  VectorRows of_values;
  for (int query = arrays.first_query_of(first); query < arrays.queries; query += kTile) {
    ScoreRows shares = multiply_rows(arrays.key_rows(arrays.key), first,
                                     arrays.query_rows(arrays.query), query, arrays.width);
    ScoreRows gradients =
        multiply_rows(arrays.value_rows(arrays.key), first,
                      arrays.output_rows(arrays.output_gradient), query, arrays.width);
    const int column_query = query + tile_lane();
    for (int i = 0; i < kRowsOfWarp; ++i) {
      if (!arrays.sees(column_query, first + tile_row(i))) {
        shares.values[i] = 0;
        gradients.values[i] = 0;
        continue;
      }
      shares.values[i] =
          expf(arrays.scale * shares.values[i] - arrays.head_log_sums()[column_query]);
      gradients.values[i] = score_gradient(shares.values[i], gradients.values[i],
                                           head_means[column_query], arrays.scale);
    }
    add_products(gradients, arrays.query_rows(arrays.query), query, arrays.width, arrays.column(),
                 of_keys);
    add_products(shares, arrays.output_rows(arrays.output_gradient), query, arrays.width,
                 arrays.column(), of_values);
  }
  float ones[kRowsOfWarp];
  for (float& one : ones) one = 1;
  write_rows(of_keys, ones, arrays.key_rows(key_gradient), first, arrays.width, arrays.column());
  write_rows(of_values, ones, arrays.value_rows(key_gradient), first, arrays.width,
             arrays.column());
}

/// The sizes that all ways to attend have.
struct Sizes {
  std::int64_t samples = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t heads = 0;
  std::int64_t width = 0;
  bool is_causal = false;
  RowPositions positions = {};

  std::int64_t hidden() const { return heads * width; }
  std::int64_t rows() const { return samples * heads * queries; }
};

template <class Number, bool kIsWhole>
HeadArrays<Number, kIsWhole> arrays_of(const Sizes& sizes) {
  return {.queries = static_cast<int>(sizes.queries),
          .keys = static_cast<int>(sizes.keys),
          .heads = static_cast<int>(sizes.heads),
          .width = static_cast<int>(sizes.width),
          .tiles = static_cast<int>(blocks_for(sizes.queries, kTile)),
          .is_causal = sizes.is_causal,
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(sizes.width))),
          .positions = sizes.positions};
}

Grid grid_of(const Sizes& sizes, std::int64_t rows) {
  return {{blocks_for(sizes.samples * sizes.heads * blocks_for(rows, kTile), 1),
           blocks_for(sizes.width, kVectorColumns), 1},
          {kTileWarps * kWarp, 1, 1}};
}

/// The gradients of values follow those of keys.
template <class Arrays>
void launch_backward(Device& device, const Sizes& sizes, Arrays arrays,
                     typename Arrays::Number* query_gradient,
                     typename Arrays::Number* key_gradient) {
  const Buffer memory = device.allocate({sizes.rows() * size_of(Type::Float32)});
  auto* means = reinterpret_cast<float*>(memory.address());
  constexpr unsigned kThreads = 128;
  launch(mean_kernel<Arrays>,
         {{blocks_for(sizes.rows(), kThreads / kWarp), 1, 1}, {kThreads, 1, 1}}, device.compute(),
         arrays, sizes.rows(), means);
  launch(query_gradient_kernel<Arrays>, grid_of(sizes, sizes.queries), device.compute(), arrays,
         means, query_gradient);
  arrays.tiles = static_cast<int>(blocks_for(sizes.keys, kTile));
  launch(key_value_gradient_kernel<Arrays>, grid_of(sizes, sizes.keys), device.compute(), arrays,
         means, key_gradient);
}

Sizes sizes_of(const AttentionShape& shape) {
  return {.samples = shape.samples,
          .queries = shape.sequence,
          .keys = shape.sequence,
          .heads = shape.heads,
          .width = shape.width,
          .is_causal = shape.is_causal};
}

template <class Number>
auto arrays_of(const Sizes& sizes, const AttentionForward& arrays) {
  auto pointers = arrays_of<Number, true>(sizes);
  pointers.query = numbers_in<Number>(arrays.queries_keys_values);
  pointers.key = pointers.query + sizes.hidden();
  pointers.output = numbers_in<Number>(arrays.output);
  pointers.log_sums = numbers_in<float>(arrays.log_sums);
  return pointers;
}

Sizes sizes_of(const ContextShape& shape) {
  return {.samples = shape.samples,
          .queries = shape.queries,
          .keys = shape.keys,
          .heads = shape.heads,
          .width = shape.width,
          .is_causal = shape.is_causal,
          .positions = shape.positions};
}

template <class Number>
auto arrays_of(const Sizes& sizes, const ContextForward& arrays) {
  auto pointers = arrays_of<Number, false>(sizes);
  pointers.query = numbers_in<Number>(arrays.queries);
  pointers.key = numbers_in<Number>(arrays.keys_values);
  pointers.output = numbers_in<Number>(arrays.output);
  pointers.log_sums = numbers_in<float>(arrays.log_sums);
  return pointers;
}

template <class Shape, class Forward>
void attend_by_kernels(Device& device, const Shape& shape, const Forward& arrays) {
  const Sizes sizes = sizes_of(shape);
  with_floats(arrays.output.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    const auto pointers = arrays_of<Number>(sizes, arrays);
    launch(forward_kernel<std::remove_const_t<decltype(pointers)>>, grid_of(sizes, sizes.queries),
           device.compute(), pointers, numbers_in<Number>(arrays.output));
  });
}

}  // namespace

void attend(Device& device, const AttentionShape& shape, const AttentionForward& arrays) {
  attend_by_kernels(device, shape, arrays);
}

void attend(Device& device, const ContextShape& shape, const ContextForward& arrays) {
  attend_by_kernels(device, shape, arrays);
}

void attend_backward(Device& device, const AttentionShape& shape, const AttentionBackward& arrays) {
  const Sizes sizes = sizes_of(shape);
  with_floats(shape.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    auto pointers = arrays_of<Number>(sizes, arrays.forward);
    pointers.output_gradient = numbers_in<Number>(arrays.output_gradient);
    auto* gradient = numbers_in<Number>(arrays.input_gradient);
    launch_backward(device, sizes, pointers, gradient, gradient + sizes.hidden());
  });
}

void attend_backward(Device& device, const ContextShape& shape, const ContextBackward& arrays) {
  const Sizes sizes = sizes_of(shape);
  with_floats(arrays.output_gradient.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    auto pointers = arrays_of<Number>(sizes, arrays.forward);
    pointers.output_gradient = numbers_in<Number>(arrays.output_gradient);
    launch_backward(device, sizes, pointers, numbers_in<Number>(arrays.query_gradient),
                    numbers_in<Number>(arrays.key_value_gradient));
  });
}

}  // namespace dapple::cuda
