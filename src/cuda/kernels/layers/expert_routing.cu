#include "cuda/kernels/layers/expert_routing.h"

#include <algorithm>

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/reductions.h"
#include "cuda/kernels/threads.h"
#include "dapple/core/error.h"

namespace dapple::cuda {
namespace {

/// Whether an expert is one of the first `count` that were chosen.
__device__ bool is_among(const std::int32_t* chosen, std::int64_t count, std::int64_t expert) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (chosen[i] == expert) return true;
  }
  return false;
}

/// Also chooses as many different experts where scores are no numbers.
__device__ std::int32_t next_expert(const float* scores, std::int64_t experts,
                                    const std::int32_t* chosen, std::int64_t count) {
  std::int64_t best = -1;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    if (is_among(chosen, count, expert)) continue;
    if (best < 0 || scores[expert] > scores[best]) best = expert;
  }
  return static_cast<std::int32_t>(best);
}

__global__ void choose_experts_kernel(std::int64_t positions, std::int64_t experts,
                                      std::int64_t per_token, const float* scores,
                                      std::int32_t* chosen, float* shares) {
  for (std::int64_t row = thread_number(); row < positions; row += thread_count()) {
    const float* of_row = scores + row * experts;
    std::int32_t* own = chosen + row * per_token;
    float* own_shares = shares + row * per_token;
    float sum = 0;
    for (std::int64_t i = 0; i < per_token; ++i) {
      own[i] = next_expert(of_row, experts, own, i);
      own_shares[i] = expf(of_row[own[i]] - of_row[own[0]]);
      sum += own_shares[i];
    }
    for (std::int64_t i = 0; i < per_token; ++i) own_shares[i] /= sum;
  }
}

constexpr int kMostEntryThreads = 256;

/// Each block counts the entries of one expert.
__global__ void count_entries_kernel(std::int64_t entries, const std::int32_t* chosen,
                                     std::int32_t* counts) {
  std::int32_t count = 0;
  for (std::int64_t i = threadIdx.x; i < entries; i += blockDim.x) {
    count += chosen[i] == static_cast<std::int32_t>(blockIdx.x) ? 1 : 0;
  }
  count = block_sum(count);
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

/// Each block places the entries of one expert, of which each thread has a range of all entries.
__global__ void place_entries_kernel(std::int64_t entries, bool is_padded,
                                     const std::int32_t* chosen, const std::int32_t* counts,
                                     std::int32_t* places, std::int32_t* order) {
  __shared__ std::int32_t of_threads[kMostEntryThreads];
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t each = (entries + blockDim.x - 1) / blockDim.x;
  const std::int64_t begin = each * threadIdx.x;
  const std::int64_t end = begin + each < entries ? begin + each : entries;
  std::int32_t own = 0;
  for (std::int64_t i = begin; i < end; ++i) own += chosen[i] == expert ? 1 : 0;
  of_threads[threadIdx.x] = own;
  __syncthreads();
  std::int32_t row = 0;
  for (std::int32_t before = 0; before < expert; ++before) {
    row += is_padded ? padded_rows_of(counts[before]) : counts[before];
  }
  const std::int32_t first = row;
  for (unsigned thread = 0; thread < threadIdx.x; ++thread) row += of_threads[thread];
  for (std::int64_t i = begin; i < end; ++i) {
    if (chosen[i] != expert) continue;
    places[i] = row;
    order[row] = static_cast<std::int32_t>(i);
    ++row;
  }
  if (!is_padded) return;
  const std::int32_t behind = first + padded_rows_of(counts[expert]);
  for (std::int32_t i = first + counts[expert] + static_cast<std::int32_t>(threadIdx.x); i < behind;
       i += static_cast<std::int32_t>(blockDim.x)) {
    order[i] = -1;
  }
}

template <class Number, int kCount>
__global__ void take_indexed_kernel(std::int64_t packs, std::int64_t packs_of_row,
                                    std::int64_t divisor, const std::int32_t* index,
                                    const float* factors, const Number* from, Number* to) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    const std::int32_t at = index[i / packs_of_row];
    Pack<Number, kCount> numbers;
    for (Number& number : numbers.values) number = rounded_to<Number>(0);
    if (at >= 0) {
      numbers =
          load<Number, kCount>(from + (at / divisor * packs_of_row + i % packs_of_row) * kCount);
    }
    if (at >= 0 && factors != nullptr) {
      const float factor = factors[at];
      for (Number& number : numbers.values) {
        number = rounded_to<Number>(to_float(number) * factor);
      }
    }
    store(to + i * kCount, numbers);
  }
}

template <class Number, int kCount>
__global__ void put_indexed_kernel(std::int64_t packs, std::int64_t packs_of_row,
                                   const std::int32_t* index, const Number* from, Number* to) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    const std::int64_t at = index[i / packs_of_row];
    if (at < 0) continue;
    store(to + (at * packs_of_row + i % packs_of_row) * kCount,
          load<Number, kCount>(from + i * kCount));
  }
}

/// Sums in single precision, in the order in which a position's experts were chosen.
template <class Number, int kCount>
__global__ void combine_entries_kernel(std::int64_t packs, std::int64_t packs_of_row,
                                       std::int64_t per_token, const std::int32_t* places,
                                       const float* shares, const Number* rows, Number* positions) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    const std::int64_t first = i / packs_of_row * per_token;
    float sums[kCount] = {};
    for (std::int64_t entry = first; entry < first + per_token; ++entry) {
      const std::int64_t pack = places[entry] * packs_of_row + i % packs_of_row;
      const auto numbers = load<Number, kCount>(rows + pack * kCount);
      const float share = shares == nullptr ? 1 : shares[entry];
      for (int k = 0; k < kCount; ++k) sums[k] += share * to_float(numbers.values[k]);
    }
    Pack<Number, kCount> result;
    for (int k = 0; k < kCount; ++k) result.values[k] = rounded_to<Number>(sums[k]);
    store(positions + i * kCount, result);
  }
}

constexpr int kRowsOfProductBlock = 4;  // one warp per row

template <class Number>
__global__ void row_products_kernel(std::int64_t rows, std::int64_t columns, const Number* left,
                                    const Number* right, float* products) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * kRowsOfProductBlock + threadIdx.x / kWarp;
  if (row >= rows) return;
  const std::int64_t lane = threadIdx.x % kWarp;
  float sum = 0;
  for (std::int64_t i = row * columns + lane; i < (row + 1) * columns; i += kWarp) {
    sum += to_float(left[i]) * to_float(right[i]);
  }
  sum = warp_sum(sum);
  if (lane == 0) products[row] = sum;
}

template <class Number>
__global__ void score_gradient_kernel(std::int64_t positions, std::int64_t experts,
                                      std::int64_t per_token, const std::int32_t* chosen,
                                      const float* shares, const std::int32_t* places,
                                      const float* products, Number* gradient) {
  for (std::int64_t i = thread_number(); i < positions * experts; i += thread_count()) {
    const std::int64_t first = i / experts * per_token;
    float sum = 0;
    float own = 0;
    float share = 0;
    for (std::int64_t entry = first; entry < first + per_token; ++entry) {
      const float product = products[places[entry]];
      sum += product;
      if (chosen[entry] != i % experts) continue;
      own = product;
      share = shares[entry];
    }
    gradient[i] = rounded_to<Number>(own - share * sum);
  }
}

/// Returns a block for each expert, with threads for several entries each.
Grid grid_of_experts(std::int64_t experts, std::int64_t entries) {
  constexpr std::int64_t kEntriesOfThread = 16;
  const std::int64_t threads =
      std::clamp<std::int64_t>(entries / kEntriesOfThread, kWarp, kMostEntryThreads);
  return {{static_cast<unsigned>(experts), 1, 1},
          {static_cast<unsigned>(threads / kWarp * kWarp), 1, 1}};
}

}  // namespace

void choose_experts(const Stream& stream, const ExpertChoice& choice) {
  const std::int64_t positions = choice.scores.count / choice.experts;
  check(choice.per_token <= choice.experts, "more experts are chosen than there are");
  launch(choose_experts_kernel, grid_for(positions), stream, positions, choice.experts,
         choice.per_token, numbers_in<float>(choice.scores),
         numbers_in<std::int32_t>(choice.chosen), numbers_in<float>(choice.shares));
}

void count_entries(const Stream& stream, View chosen, View counts) {
  launch(count_entries_kernel, grid_of_experts(counts.count, chosen.count), stream, chosen.count,
         numbers_in<std::int32_t>(chosen), numbers_in<std::int32_t>(counts));
}

void place_entries(const Stream& stream, const EntryRows& arrays) {
  launch(place_entries_kernel, grid_of_experts(arrays.counts.count, arrays.chosen.count), stream,
         arrays.chosen.count, arrays.rows == ExpertRows::Padded,
         numbers_in<std::int32_t>(arrays.chosen), numbers_in<std::int32_t>(arrays.counts),
         numbers_in<std::int32_t>(arrays.places), numbers_in<std::int32_t>(arrays.order));
}

void take_rows(const Stream& stream, const TakenRows& rows) {
  with_packs(rows.to.type, rows.columns, {rows.from, rows.to}, [&](auto of, auto pack) {
    using Number = typename decltype(of)::Number;
    const std::int64_t packs = rows.to.count / pack.value;
    launch(take_indexed_kernel<Number, pack.value>, grid_for(packs), stream, packs,
           rows.columns / pack.value, rows.divisor, numbers_in<std::int32_t>(rows.index),
           numbers_in<float>(rows.factors), numbers_in<Number>(rows.from),
           numbers_in<Number>(rows.to));
  });
}

void put_rows(const Stream& stream, std::int64_t columns, View index, View from, View to) {
  with_packs(to.type, columns, {from, to}, [&](auto of, auto pack) {
    using Number = typename decltype(of)::Number;
    const std::int64_t packs = from.count / pack.value;
    launch(put_indexed_kernel<Number, pack.value>, grid_for(packs), stream, packs,
           columns / pack.value, numbers_in<std::int32_t>(index), numbers_in<Number>(from),
           numbers_in<Number>(to));
  });
}

void combine_rows(const Stream& stream, const CombinedRows& rows) {
  with_packs(rows.rows.type, rows.columns, {rows.rows, rows.positions}, [&](auto of, auto pack) {
    using Number = typename decltype(of)::Number;
    const std::int64_t packs = rows.positions.count / pack.value;
    launch(combine_entries_kernel<Number, pack.value>, grid_for(packs), stream, packs,
           rows.columns / pack.value, rows.per_token, numbers_in<std::int32_t>(rows.places),
           numbers_in<float>(rows.shares), numbers_in<Number>(rows.rows),
           numbers_in<Number>(rows.positions));
  });
}

void take_row_products(const Stream& stream, std::int64_t columns, View left, View right,
                       View products) {
  const std::int64_t rows = products.count;
  with_floats(left.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(row_products_kernel<Number>,
           {{blocks_for(std::max<std::int64_t>(rows, 1), kRowsOfProductBlock), 1, 1},
            {kRowsOfProductBlock * kWarp, 1, 1}},
           stream, rows, columns, numbers_in<Number>(left), numbers_in<Number>(right),
           numbers_in<float>(products));
  });
}

void score_gradients(const Stream& stream, const ScoreGradients& arrays) {
  const std::int64_t positions = arrays.gradient.count / arrays.experts;
  with_floats(arrays.gradient.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(score_gradient_kernel<Number>, grid_for(arrays.gradient.count), stream, positions,
           arrays.experts, arrays.per_token, numbers_in<std::int32_t>(arrays.chosen),
           numbers_in<float>(arrays.shares), numbers_in<std::int32_t>(arrays.places),
           numbers_in<float>(arrays.products), numbers_in<Number>(arrays.gradient));
  });
}

}  // namespace dapple::cuda
