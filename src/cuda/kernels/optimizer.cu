#include "dapple/cuda/kernels/optimizer.h"

#include <cmath>

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/threads.h"

namespace dapple::cuda {
namespace {

/// The settings, and the values derived from them for one step.
struct Step {
  float gradient_factor;
  float learning_rate;
  float weight_decay;
  float momentum;
  float beta1;
  float beta2;
  float epsilon;
  // Adam's learning rate with the bias correction of the first moment.
  float rate;
  // The square root of the bias correction of Adam's second moment.
  float root;
};

/// Returns the new value of a parameter and updates its state. Formulas as in src/nn/optimizer.cpp.
template <nn::OptimizerKind kKind>
__device__ float stepped(const Step& step, float value, float gradient, float& first,
                         float& second) {
  if constexpr (kKind == nn::OptimizerKind::Sgd) {
    return value - step.learning_rate * (gradient + step.weight_decay * value);
  } else if constexpr (kKind == nn::OptimizerKind::Momentum) {
    first = step.momentum * first + (gradient + step.weight_decay * value);
    return value - step.learning_rate * first;
  } else {
    if constexpr (kKind == nn::OptimizerKind::AdamW) {
      value *= 1 - step.learning_rate * step.weight_decay;
    } else {
      gradient += step.weight_decay * value;
    }
    first += (1 - step.beta1) * (gradient - first);
    second = step.beta2 * second + (1 - step.beta2) * gradient * gradient;
    return value - step.rate * first / (sqrtf(second) / step.root + step.epsilon);
  }
}

template <nn::OptimizerKind kKind, class Copy, int kCount>
__global__ void update_kernel(Step step, float* parameters, const float* gradients, float* first,
                              float* second, Copy* copy, std::int64_t packs) {
  constexpr int kStates = kKind == nn::OptimizerKind::Sgd        ? 0
                          : kKind == nn::OptimizerKind::Momentum ? 1
                                                                 : 2;
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    const std::int64_t at = i * kCount;
    auto values = load<float, kCount>(parameters + at);
    const auto slopes = load<float, kCount>(gradients + at);
    Pack<float, kCount> firsts{};
    Pack<float, kCount> seconds{};
    if constexpr (kStates > 0) firsts = load<float, kCount>(first + at);
    if constexpr (kStates > 1) seconds = load<float, kCount>(second + at);
    Pack<Copy, kCount> rounded;
    for (int k = 0; k < kCount; ++k) {
      values.values[k] =
          stepped<kKind>(step, values.values[k], step.gradient_factor * slopes.values[k],
                         firsts.values[k], seconds.values[k]);
      rounded.values[k] = rounded_to<Copy>(values.values[k]);
    }
    store(parameters + at, values);
    if constexpr (kStates > 0) store(first + at, firsts);
    if constexpr (kStates > 1) store(second + at, seconds);
    if (copy != nullptr) store(copy + at, rounded);
  }
}

template <nn::OptimizerKind kKind>
void enqueue(const Stream& stream, const Step& step, const UpdatedArrays& arrays) {
  const std::int64_t count = arrays.parameters.count;
  const std::int64_t states = nn::state_count(kKind);
  const View first = arrays.state.part(0, states > 0 ? count : 0);
  const View second = arrays.state.part(states > 1 ? count : 0, states > 1 ? 2 * count : 0);
  constexpr int kFull = 4;
  bool is_packed = true;
  for (const View& view : {arrays.parameters, arrays.gradients, first, second, arrays.copy}) {
    is_packed = is_packed && is_packable(view, count, kFull);
  }
  with_floats(arrays.copy.type, [&](auto of) {
    using Copy = typename decltype(of)::Number;
    const auto with_pack = [&](auto pack) {
      const std::int64_t packs = count / pack.value;
      launch(update_kernel<kKind, Copy, pack.value>, grid_for(packs), stream, step,
             numbers_in<float>(arrays.parameters), numbers_in<float>(arrays.gradients),
             numbers_in<float>(first), numbers_in<float>(second),
             arrays.copy.count == 0 ? nullptr : numbers_in<Copy>(arrays.copy), packs);
    };
    if (is_packed) return with_pack(PackOf<kFull>{});
    with_pack(PackOf<1>{});
  });
}

}  // namespace

void update(const Stream& stream, const nn::OptimizerSettings& settings, std::int64_t number,
            float gradient_factor, const UpdatedArrays& arrays) {
  using nn::OptimizerKind;
  const std::int64_t count = arrays.parameters.count;
  check(arrays.gradients.count == count &&
            arrays.state.count == nn::state_count(settings.kind) * count &&
            (arrays.copy.count == 0 || arrays.copy.count == count),
        "an optimizer step is of arrays of different lengths");
  if (count == 0) return;
  const auto steps = static_cast<double>(number);
  const double mean_share = 1 - std::pow(static_cast<double>(settings.beta1), steps);
  const double square_share = 1 - std::pow(static_cast<double>(settings.beta2), steps);
  const Step step{.gradient_factor = gradient_factor,
                  .learning_rate = settings.learning_rate,
                  .weight_decay = settings.weight_decay,
                  .momentum = settings.momentum,
                  .beta1 = settings.beta1,
                  .beta2 = settings.beta2,
                  .epsilon = settings.epsilon,
                  .rate = static_cast<float>(settings.learning_rate / mean_share),
                  .root = static_cast<float>(std::sqrt(square_share))};
  switch (settings.kind) {
    case OptimizerKind::Sgd:
      return enqueue<OptimizerKind::Sgd>(stream, step, arrays);
    case OptimizerKind::Momentum:
      return enqueue<OptimizerKind::Momentum>(stream, step, arrays);
    case OptimizerKind::Adam:
      return enqueue<OptimizerKind::Adam>(stream, step, arrays);
    case OptimizerKind::AdamW:
      return enqueue<OptimizerKind::AdamW>(stream, step, arrays);
  }
}

}  // namespace dapple::cuda
