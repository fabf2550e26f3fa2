#include "cuda/kernels/layers/activations.h"

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/threads.h"

namespace dapple::cuda {
namespace {

struct Relu {
  static __device__ float value(float x) { return x > 0 ? x : 0; }
  static __device__ float slope(float x) { return x > 0 ? 1.0F : 0.0F; }
};

struct Gelu {
  static constexpr float kScale = 0.7978845608F;
  static constexpr float kCube = 0.044715F;

  static __device__ float tanh_at(float x) { return tanhf(kScale * (x + kCube * x * x * x)); }
  static __device__ float value(float x) { return 0.5F * x * (1 + tanh_at(x)); }
  static __device__ float slope(float x) {
    const float t = tanh_at(x);
    return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * kScale * (1 + 3 * kCube * x * x);
  }
};

template <class Function, class Number, int kCount>
__global__ void value_kernel(const Number* from, Number* to, std::int64_t packs) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    auto numbers = load<Number, kCount>(from + i * kCount);
    for (Number& number : numbers.values) {
      number = rounded_to<Number>(Function::value(to_float(number)));
    }
    store(to + i * kCount, numbers);
  }
}

template <class Function, class Number, int kCount>
__global__ void gradient_kernel(const Number* input, Number* gradient, std::int64_t packs) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    const auto numbers = load<Number, kCount>(input + i * kCount);
    auto slopes = load<Number, kCount>(gradient + i * kCount);
    for (int k = 0; k < kCount; ++k) {
      slopes.values[k] = rounded_to<Number>(to_float(slopes.values[k]) *
                                            Function::slope(to_float(numbers.values[k])));
    }
    store(gradient + i * kCount, slopes);
  }
}

template <class Function>
void enqueue_value(const Stream& stream, std::int64_t columns, const View& from, const View& to) {
  with_packs(from.type, columns, {from, to}, [&](auto of, auto pack) {
    using Number = typename decltype(of)::Number;
    const std::int64_t packs = from.count / pack.value;
    launch(value_kernel<Function, Number, pack.value>, grid_for(packs), stream,
           numbers_in<Number>(from), numbers_in<Number>(to), packs);
  });
}

template <class Function>
void enqueue_gradient(const Stream& stream, std::int64_t columns, const View& input,
                      const View& gradient) {
  with_packs(input.type, columns, {input, gradient}, [&](auto of, auto pack) {
    using Number = typename decltype(of)::Number;
    const std::int64_t packs = input.count / pack.value;
    launch(gradient_kernel<Function, Number, pack.value>, grid_for(packs), stream,
           numbers_in<Number>(input), numbers_in<Number>(gradient), packs);
  });
}

__device__ float logistic(float x) {
  return 1 / (1 + expf(-x));
}

/// Calls `visit(i, gate)` for each pack of results of this thread, where i is its first number in
/// the output, and gate that of its gates in the input, `columns` before its values.
template <int kCount, class Visit>
__device__ void for_each_gate(std::int64_t columns, std::int64_t packs, const Visit& visit) {
  for (std::int64_t pack = thread_number(); pack < packs; pack += thread_count()) {
    const std::int64_t i = pack * kCount;
    visit(i, i + i / columns * columns);
  }
}

template <class Number, int kCount>
__global__ void swiglu_kernel(std::int64_t columns, const Number* input, Number* to,
                              std::int64_t packs) {
  for_each_gate<kCount>(columns, packs, [&](std::int64_t i, std::int64_t gate) {
    const auto gates = load<Number, kCount>(input + gate);
    auto values = load<Number, kCount>(input + gate + columns);
    for (int k = 0; k < kCount; ++k) {
      const float x = to_float(gates.values[k]);
      values.values[k] = rounded_to<Number>(x * logistic(x) * to_float(values.values[k]));
    }
    store(to + i, values);
  });
}

template <class Number, int kCount>
__global__ void swiglu_gradient_kernel(std::int64_t columns, const Number* input,
                                       const Number* output_gradient, Number* to,
                                       std::int64_t packs) {
  for_each_gate<kCount>(columns, packs, [&](std::int64_t i, std::int64_t gate) {
    auto gates = load<Number, kCount>(input + gate);
    auto values = load<Number, kCount>(input + gate + columns);
    const auto slopes = load<Number, kCount>(output_gradient + i);
    for (int k = 0; k < kCount; ++k) {
      const float x = to_float(gates.values[k]);
      const float slope = to_float(slopes.values[k]);
      const float share = logistic(x);
      gates.values[k] =
          rounded_to<Number>(slope * to_float(values.values[k]) * share * (1 + x * (1 - share)));
      values.values[k] = rounded_to<Number>(slope * x * share);
    }
    store(to + gate, gates);
    store(to + gate + columns, values);
  });
}

}  // namespace

void relu(const Stream& stream, std::int64_t columns, View from, View to) {
  enqueue_value<Relu>(stream, columns, from, to);
}

void gelu(const Stream& stream, std::int64_t columns, View from, View to) {
  enqueue_value<Gelu>(stream, columns, from, to);
}

void relu_gradient(const Stream& stream, std::int64_t columns, View input, View gradient) {
  enqueue_gradient<Relu>(stream, columns, input, gradient);
}

void gelu_gradient(const Stream& stream, std::int64_t columns, View input, View gradient) {
  enqueue_gradient<Gelu>(stream, columns, input, gradient);
}

void swiglu(const Stream& stream, std::int64_t columns, View input, View to) {
  with_packs(input.type, columns, {input, to}, [&](auto of, auto pack) {
    using Number = typename decltype(of)::Number;
    const std::int64_t packs = to.count / pack.value;
    launch(swiglu_kernel<Number, pack.value>, grid_for(packs), stream, columns,
           numbers_in<Number>(input), numbers_in<Number>(to), packs);
  });
}

void swiglu_gradient(const Stream& stream, std::int64_t columns, View input, View output_gradient,
                     View to) {
  with_packs(input.type, columns, {input, output_gradient, to}, [&](auto of, auto pack) {
    using Number = typename decltype(of)::Number;
    const std::int64_t packs = output_gradient.count / pack.value;
    launch(swiglu_gradient_kernel<Number, pack.value>, grid_for(packs), stream, columns,
           numbers_in<Number>(input), numbers_in<Number>(output_gradient), numbers_in<Number>(to),
           packs);
  });
}

}  // namespace dapple::cuda
