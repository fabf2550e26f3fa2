#include "cuda/kernels/layers/head_groups.h"

#include <cmath>

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/threads.h"

namespace dapple::cuda {
namespace {

/// HeadGroups for kernels, in 32 bits where numbers are divided.
struct Groups {
  int sequence;
  int heads;     // of queries
  int kv_heads;  // of keys, and as many of values
  int copies;    // of each of these
  int width;
  // [sequence, width / 2] cosines and then as many sines; null: nothing is turned.
  const float* turns;

  __device__ int turned_columns() const { return (heads + kv_heads) * width; }
  __device__ int columns() const { return (heads + 2 * kv_heads) * width; }
  __device__ int spread_columns() const { return (heads + 2 * kv_heads * copies) * width; }
};

/// Writes the cosine and the sine of the position of each row, and of each pair, of angles in
/// double precision.
__global__ void turns_kernel(int sequence, int pairs, double base, RowPositions positions,
                             float* turns) {
  const std::int64_t count = std::int64_t{sequence} * pairs;
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    const std::int64_t position = positions.of(static_cast<std::int32_t>(i / pairs));
    const auto pair = static_cast<double>(i % pairs);
    const double angle = static_cast<double>(position) * pow(base, -pair / pairs);
    turns[i] = static_cast<float>(cos(angle));
    turns[count + i] = static_cast<float>(sin(angle));
  }
}

/// Returns number `i` of a head at a position after turning the head by `direction` times its
/// angles. `number(k)` is number k before.
template <class NumberAt>
__device__ float turned(const Groups& groups, int position, int i, float direction,
                        const NumberAt& number) {
  const int pairs = groups.width / 2;
  const bool is_first = i < pairs;
  const std::int64_t at = std::int64_t{position} * pairs + (is_first ? i : i - pairs);
  const float cosine = groups.turns[at];
  const float sine = direction * groups.turns[std::int64_t{groups.sequence} * pairs + at];
  const float other = number(is_first ? i + pairs : i - pairs);
  return number(i) * cosine + (is_first ? -other : other) * sine;
}

template <class Number>
__global__ void spread_kernel(Groups groups, std::int64_t rows, const Number* from, Number* to) {
  const int columns = groups.spread_columns();
  const int spread_heads = groups.kv_heads * groups.copies;
  for (std::int64_t n = thread_number(); n < rows * columns; n += thread_count()) {
    const std::int64_t row = n / columns;
    const int column = static_cast<int>(n % columns);
    const int place = column / groups.width;
    const int i = column % groups.width;
    const bool is_query = place < groups.heads;
    const int kv_place = place - groups.heads;
    const bool is_value = !is_query && kv_place >= spread_heads;
    const int source = is_query ? place : groups.heads + kv_place / groups.copies;
    const Number* numbers = from + row * groups.columns() + source * groups.width;
    const auto number = [&](int k) { return to_float(numbers[k]); };
    const auto position = static_cast<int>(row % groups.sequence);
    to[n] = groups.turns != nullptr && !is_value
                ? rounded_to<Number>(turned(groups, position, i, 1, number))
                : numbers[i];
  }
}

template <class Number>
__global__ void gather_kernel(Groups groups, std::int64_t rows, const Number* from, Number* to) {
  const int columns = groups.columns();
  for (std::int64_t n = thread_number(); n < rows * columns; n += thread_count()) {
    const std::int64_t row = n / columns;
    const int column = static_cast<int>(n % columns);
    const int place = column / groups.width;
    const int i = column % groups.width;
    const bool is_query = place < groups.heads;
    const int copies = is_query ? 1 : groups.copies;
    const int first = is_query ? place : groups.heads + (place - groups.heads) * copies;
    const Number* numbers = from + row * groups.spread_columns() + first * groups.width;
    const auto number = [&](int k) {
      float sum = 0;
      for (int copy = 0; copy < copies; ++copy) sum += to_float(numbers[copy * groups.width + k]);
      return sum;
    };
    const auto position = static_cast<int>(row % groups.sequence);
    const bool is_turned = groups.turns != nullptr && column < groups.turned_columns();
    to[n] = rounded_to<Number>(is_turned ? turned(groups, position, i, -1, number) : number(i));
  }
}

/// Returns the numbers of which Groups::turns points to, or an empty tensor.
DeviceTensor make_turns(Device& device, const HeadGroups& groups) {
  if (!groups.rotary_base) return {};
  const std::int64_t pairs = groups.width / 2;
  DeviceTensor turns = make_tensor(device, {2, groups.sequence, pairs}, Type::Float32);
  launch(turns_kernel, grid_for(groups.sequence * pairs), device.compute(),
         static_cast<int>(groups.sequence), static_cast<int>(pairs), *groups.rotary_base,
         groups.positions, numbers_in<float>(turns.view()));
  return turns;
}

Groups for_kernels(const HeadGroups& groups, const DeviceTensor& turns) {
  return {.sequence = static_cast<int>(groups.sequence),
          .heads = static_cast<int>(groups.heads),
          .kv_heads = static_cast<int>(groups.kv_heads),
          .copies = static_cast<int>(groups.copies),
          .width = static_cast<int>(groups.width),
          .turns = turns.memory ? numbers_in<float>(turns.view()) : nullptr};
}

}  // namespace

void spread_heads(Device& device, const HeadGroups& groups, View from, View to) {
  const DeviceTensor turns = make_turns(device, groups);
  with_floats(to.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(spread_kernel<Number>, grid_for(to.count), device.compute(), for_kernels(groups, turns),
           to.count / groups.spread_columns(), numbers_in<Number>(from), numbers_in<Number>(to));
  });
}

void gather_heads(Device& device, const HeadGroups& groups, View from, View to) {
  const DeviceTensor turns = make_turns(device, groups);
  with_floats(to.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(gather_kernel<Number>, grid_for(to.count), device.compute(), for_kernels(groups, turns),
           to.count / groups.columns(), numbers_in<Number>(from), numbers_in<Number>(to));
  });
}

}  // namespace dapple::cuda
