#include "cuda/kernels/layers/attention_kernels.h"

#include <cmath>

#include "cuda/kernels/launch.h"
#include "cuda/kernels/layers/attention_tiles.h"

namespace dapple::cuda {
namespace {

/// The number of resident blocks for which the compiler must leave registers; it spills none.
[[maybe_unused]] constexpr int kBlocksPerMultiprocessor = 2;

/// The arguments of all kernels. A block processes 32 positions of a head of a sample (blockIdx.x)
/// and 128 columns of their vectors (blockIdx.y).
template <class Number>
struct HeadArrays {
  int sequence = 0;
  int heads = 0;
  int width = 0;
  int tiles = 0;  // of 32 positions
  bool is_causal = false;
  float scale = 1;
  const Number* queries_keys_values = nullptr;
  const Number* output = nullptr;
  float* log_sums = nullptr;
  const Number* output_gradient = nullptr;

  __device__ int first() const { return static_cast<int>(blockIdx.x) % tiles * kTile; }
  __device__ int column() const { return static_cast<int>(blockIdx.y) * kVectorColumns; }
  __device__ std::int64_t head() const { return static_cast<int>(blockIdx.x) / tiles; }

  /// Returns the rows of the block's head in [samples, sequence, parts, heads, width].
  template <class Kind>
  __device__ HeadRows<Kind> rows_of(Kind* numbers, int part, int parts) const {
    const std::int64_t hidden = static_cast<std::int64_t>(heads) * width;
    const std::int64_t sample = head() / heads;
    return {numbers + sample * sequence * parts * hidden + part * hidden + head() % heads * width,
            parts * hidden};
  }
  __device__ HeadRows<const Number> queries() const { return rows_of(queries_keys_values, 0, 3); }
  __device__ HeadRows<const Number> keys() const { return rows_of(queries_keys_values, 1, 3); }
  __device__ HeadRows<const Number> values() const { return rows_of(queries_keys_values, 2, 3); }
  __device__ HeadRows<const Number> slopes() const { return rows_of(output_gradient, 0, 1); }
  __device__ float* head_log_sums() const { return log_sums + head() * sequence; }

  __device__ bool sees(int query, int key) const {
    return query < sequence && key < sequence && (!is_causal || key <= query);
  }
};

template <class Number>
__global__ void __launch_bounds__(kTileWarps* kWarp, kBlocksPerMultiprocessor)
    forward_kernel(HeadArrays<Number> arrays, Number* output) {
  const int first = arrays.first();
  const int end = arrays.is_causal ? first + kTile : arrays.sequence;
  float largest[kRowsOfWarp];
  float sums[kRowsOfWarp] = {};
  for (float& value : largest) value = -INFINITY;
  VectorRows attended;
  for (int key = 0; key < end && key < arrays.sequence; key += kTile) {
    ScoreRows scores =
        multiply_rows(arrays.queries(), first, arrays.keys(), key, arrays.sequence, arrays.width);
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const bool is_seen = arrays.sees(first + tile_row(i), key + tile_lane());
      const float score = is_seen ? arrays.scale * scores.values[i] : -INFINITY;
      const float new_largest = fmaxf(largest[i], warp_max(score));
      // Rows beyond the sequence attend to nothing and have no largest score.
      const float share = is_seen ? expf(score - new_largest) : 0;
      const float shrinking = new_largest == -INFINITY ? 1 : expf(largest[i] - new_largest);
      sums[i] = sums[i] * shrinking + warp_sum(share);
      for (float& number : attended.values[i]) number *= shrinking;
      largest[i] = new_largest;
      scores.values[i] = share;
    }
    add_products(scores, arrays.values(), key, arrays.sequence, arrays.width, arrays.column(),
                 attended);
  }
  float inverses[kRowsOfWarp];
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int position = first + tile_row(i);
    inverses[i] = sums[i] > 0 ? 1 / sums[i] : 0;
    if (position < arrays.sequence && tile_lane() == 0 && blockIdx.y == 0) {
      arrays.head_log_sums()[position] = largest[i] + logf(sums[i]);
    }
  }
  write_rows(attended, inverses, arrays.rows_of(output, 0, 1), first, arrays.sequence, arrays.width,
             arrays.column());
}

/// Computes means[head][position] = output gradient times output, which softmax's backward
/// subtracts from the gradient of each probability. One warp per row.
template <class Number>
__global__ void mean_kernel(HeadArrays<Number> arrays, std::int64_t rows, float* means) {
  const std::int64_t row =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (row >= rows) return;
  // Rows are those of [samples, heads, sequence], vectors those of [samples, sequence, heads].
  const std::int64_t head = row / arrays.sequence;
  const std::int64_t position = row % arrays.sequence;
  const std::int64_t sample = head / arrays.heads;
  const std::int64_t begin =
      ((sample * arrays.sequence + position) * arrays.heads + head % arrays.heads) * arrays.width;
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

template <class Number>
__global__ void __launch_bounds__(kTileWarps* kWarp, kBlocksPerMultiprocessor)
    query_gradient_kernel(HeadArrays<Number> arrays, const float* means, Number* input_gradient) {
  const int first = arrays.first();
  const int end = arrays.is_causal ? first + kTile : arrays.sequence;
  const float* head_means = means + arrays.head() * arrays.sequence;
  VectorRows sums;
  for (int key = 0; key < end && key < arrays.sequence; key += kTile) {
    const ScoreRows scores =
        multiply_rows(arrays.queries(), first, arrays.keys(), key, arrays.sequence, arrays.width);
    ScoreRows gradients =
        multiply_rows(arrays.slopes(), first, arrays.values(), key, arrays.sequence, arrays.width);
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
    add_products(gradients, arrays.keys(), key, arrays.sequence, arrays.width, arrays.column(),
                 sums);
  }
  float ones[kRowsOfWarp];
  for (float& one : ones) one = 1;
  write_rows(sums, ones, arrays.rows_of(input_gradient, 0, 3), first, arrays.sequence, arrays.width,
             arrays.column());
}

/// In this kernel the rows of tiles are keys and the columns queries.
template <class Number>
__global__ void __launch_bounds__(kTileWarps* kWarp, kBlocksPerMultiprocessor)
    key_value_gradient_kernel(HeadArrays<Number> arrays, const float* means,
                              Number* input_gradient) {
  const int first = arrays.first();
  const float* head_means = means + arrays.head() * arrays.sequence;
  VectorRows of_keys;
  VectorRows of_values;
  for (int query = arrays.is_causal ? first : 0; query < arrays.sequence; query += kTile) {
    ScoreRows shares =
        multiply_rows(arrays.keys(), first, arrays.queries(), query, arrays.sequence, arrays.width);
    ScoreRows gradients = multiply_rows(arrays.values(), first, arrays.slopes(), query,
                                        arrays.sequence, arrays.width);
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
    add_products(gradients, arrays.queries(), query, arrays.sequence, arrays.width, arrays.column(),
                 of_keys);
    add_products(shares, arrays.slopes(), query, arrays.sequence, arrays.width, arrays.column(),
                 of_values);
  }
  float ones[kRowsOfWarp];
  for (float& one : ones) one = 1;
  write_rows(of_keys, ones, arrays.rows_of(input_gradient, 1, 3), first, arrays.sequence,
             arrays.width, arrays.column());
  write_rows(of_values, ones, arrays.rows_of(input_gradient, 2, 3), first, arrays.sequence,
             arrays.width, arrays.column());
}

template <class Number>
HeadArrays<Number> arrays_of(const AttentionShape& shape, const AttentionForward& arrays) {
  return {.sequence = static_cast<int>(shape.sequence),
          .heads = static_cast<int>(shape.heads),
          .width = static_cast<int>(shape.width),
          .tiles = static_cast<int>(blocks_for(shape.sequence, kTile)),
          .is_causal = shape.is_causal,
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.width))),
          .queries_keys_values = numbers_in<Number>(arrays.queries_keys_values),
          .output = numbers_in<Number>(arrays.output),
          .log_sums = numbers_in<float>(arrays.log_sums)};
}

Grid grid_of(const AttentionShape& shape) {
  const std::int64_t tiles = blocks_for(shape.sequence, kTile);
  return {{blocks_for(shape.samples * shape.heads * tiles, 1),
           blocks_for(shape.width, kVectorColumns), 1},
          {kTileWarps * kWarp, 1, 1}};
}

}  // namespace

void attend(Device& device, const AttentionShape& shape, const AttentionForward& arrays) {
  with_floats(shape.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(forward_kernel<Number>, grid_of(shape), device.compute(),
           arrays_of<Number>(shape, arrays), numbers_in<Number>(arrays.output));
  });
}

void attend_backward(Device& device, const AttentionShape& shape, const AttentionBackward& arrays) {
  const std::int64_t rows = shape.samples * shape.heads * shape.sequence;
  const Buffer memory = device.allocate({rows * size_of(Type::Float32)});
  auto* means = reinterpret_cast<float*>(memory.address());
  with_floats(shape.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    HeadArrays<Number> pointers = arrays_of<Number>(shape, arrays.forward);
    pointers.output_gradient = numbers_in<Number>(arrays.output_gradient);
    auto* gradient = numbers_in<Number>(arrays.input_gradient);
    constexpr unsigned kThreads = 128;
    launch(mean_kernel<Number>, {{blocks_for(rows, kThreads / kWarp), 1, 1}, {kThreads, 1, 1}},
           device.compute(), pointers, rows, means);
    launch(query_gradient_kernel<Number>, grid_of(shape), device.compute(), pointers, means,
           gradient);
    launch(key_value_gradient_kernel<Number>, grid_of(shape), device.compute(), pointers, means,
           gradient);
  });
}

}  // namespace dapple::cuda
