#include "cuda/kernels/layers/embedding.h"

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/threads.h"

namespace dapple::cuda {
namespace {

/// The tokens of which a table has vectors.
struct TokenRange {
  std::int64_t first;
  std::int64_t count;

  /// Whether a token is one of them, given its number among them.
  __device__ bool contains(std::int64_t token) const { return token >= 0 && token < count; }
};

template <class Number, int kCount>
__global__ void look_up_kernel(std::int64_t packs, std::int64_t packs_per_row,
                               std::int64_t positions_packs, TokenRange range,
                               const std::int32_t* tokens, const Number* table,
                               const Number* positions, Number* output) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    const std::int64_t row = i / packs_per_row;
    const std::int64_t column = (i - row * packs_per_row) * kCount;
    const std::int64_t token = tokens[row] - range.first;
    Pack<Number, kCount> numbers;
    for (Number& number : numbers.values) number = rounded_to<Number>(0);
    if (range.contains(token)) {
      numbers = load<Number, kCount>(table + token * packs_per_row * kCount + column);
    }
    if (positions != nullptr) {
      const auto addend = load<Number, kCount>(positions + i % positions_packs * kCount);
      for (int k = 0; k < kCount; ++k) {
        numbers.values[k] =
            rounded_to<Number>(to_float(numbers.values[k]) + to_float(addend.values[k]));
      }
    }
    store(output + i * kCount, numbers);
  }
}

template <class Number, int kCount>
__global__ void add_positions_kernel(std::int64_t packs, std::int64_t positions_packs,
                                     const Number* positions, Number* vectors) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    auto numbers = load<Number, kCount>(vectors + i * kCount);
    const auto addend = load<Number, kCount>(positions + i % positions_packs * kCount);
    for (int k = 0; k < kCount; ++k) {
      numbers.values[k] =
          rounded_to<Number>(to_float(numbers.values[k]) + to_float(addend.values[k]));
    }
    store(vectors + i * kCount, numbers);
  }
}

template <class Number>
__global__ void token_gradient_kernel(std::int64_t count, std::int64_t hidden, TokenRange range,
                                      const std::int32_t* tokens, const Number* gradient,
                                      float* sums) {
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    const std::int64_t row = i / hidden;
    const std::int64_t token = tokens[row] - range.first;
    if (!range.contains(token)) continue;
    atomicAdd(sums + token * hidden + (i - row * hidden), to_float(gradient[i]));
  }
}

template <class Number>
__global__ void position_gradient_kernel(std::int64_t samples, std::int64_t count,
                                         const Number* gradient, float* sums) {
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    float sum = 0;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      sum += to_float(gradient[sample * count + i]);
    }
    sums[i] += sum;
  }
}

}  // namespace

void look_up(const Stream& stream, const TokenVectors& arrays) {
  with_packs(arrays.table.type, arrays.hidden, {arrays.table, arrays.positions, arrays.output},
             [&](auto of, auto pack) {
               using Number = typename decltype(of)::Number;
               const std::int64_t packs = arrays.output.count / pack.value;
               launch(look_up_kernel<Number, pack.value>, grid_for(packs), stream, packs,
                      arrays.hidden / pack.value, arrays.positions.count / pack.value,
                      TokenRange{arrays.first_token, arrays.table.count / arrays.hidden},
                      numbers_in<std::int32_t>(arrays.tokens), numbers_in<Number>(arrays.table),
                      numbers_in<Number>(arrays.positions), numbers_in<Number>(arrays.output));
             });
}

void add_positions(const Stream& stream, View positions, View vectors) {
  with_packs(vectors.type, positions.count, {positions, vectors}, [&](auto of, auto pack) {
    using Number = typename decltype(of)::Number;
    const std::int64_t packs = vectors.count / pack.value;
    launch(add_positions_kernel<Number, pack.value>, grid_for(packs), stream, packs,
           positions.count / pack.value, numbers_in<Number>(positions),
           numbers_in<Number>(vectors));
  });
}

void add_token_gradients(const Stream& stream, const TokenGradients& arrays) {
  const std::int64_t count = arrays.gradient.count;
  with_floats(arrays.gradient.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(token_gradient_kernel<Number>, grid_for(count), stream, count, arrays.hidden,
           TokenRange{arrays.first_token, arrays.sums.count / arrays.hidden},
           numbers_in<std::int32_t>(arrays.tokens), numbers_in<Number>(arrays.gradient),
           numbers_in<float>(arrays.sums));
  });
}

void add_position_gradients(const Stream& stream, View gradient, View sums) {
  with_floats(gradient.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(position_gradient_kernel<Number>, grid_for(sums.count), stream,
           gradient.count / sums.count, sums.count, numbers_in<Number>(gradient),
           numbers_in<float>(sums));
  });
}

}  // namespace dapple::cuda
