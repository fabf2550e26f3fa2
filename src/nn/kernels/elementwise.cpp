// Functions of many numbers, for the compiler to make instructions of. Each has one order of
// operations, those of a sum in kLanes parts, so that its bits depend on no instruction set. No
// header with functions in it may be included here (../kernels.h says why).
#include "nn/kernels.h"

namespace dapple::nn::DAPPLE_KERNELS {
namespace {

constexpr std::int64_t kLanes = 16;

/// To 1e-7 of it. Below -87, about the least normal number, it is zero; above 88 it is infinite.
///
/// x is n ln 2 + rest with a whole number n, and |rest| <= ln 2 / 2, where eight terms of the
/// series are within 6e-9. ln 2 is taken in two parts, the first of so few bits that n times it is
/// exact (Cody and Waite 1980).
inline float exponential(float x) {
  constexpr float kLeast = -87.0F;
  constexpr float kMost = 88.0F;
  constexpr float kRounds = 12582912.0F;  // 1.5 * 2^23: the last bit of what is added to it is one
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  const float within = x > kMost ? kMost : x;
  const float shifted = within * kLog2E + kRounds;
  const float n = shifted - kRounds;
  const float rest = (within - n * kLn2High) - n * kLn2Low;
  float series = 1.0F / 5040;
  series = series * rest + 1.0F / 720;
  series = series * rest + 1.0F / 120;
  series = series * rest + 1.0F / 24;
  series = series * rest + 1.0F / 6;
  series = series * rest + 0.5F;
  series = series * rest + 1.0F;
  series = series * rest + 1.0F;
  // 2^n has n + 127 as its exponent, and the last bits of `shifted` are n.
  const std::uint32_t bits = (__builtin_bit_cast(std::uint32_t, shifted) + 127U) << 23U;
  const float result = series * __builtin_bit_cast(float, bits);
  return x < kLeast ? 0.0F : x > kMost ? __builtin_inff() : result;
}

inline float sum_of(const float (&lanes)[kLanes]) {
  float sums[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) sums[i] = lanes[i];
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

/// The sum of term(0) to term(count - 1).
template <class Term>
inline float sum_of_terms(std::int64_t count, const Term& term) {
  float lanes[kLanes] = {};
  std::int64_t begin = 0;
  for (; begin + kLanes <= count; begin += kLanes) {
    for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] += term(begin + i);
  }
  for (std::int64_t i = 0; begin + i < count; ++i) lanes[i] += term(begin + i);
  return sum_of(lanes);
}

inline float largest_of(const float* values, std::int64_t count) {
  float lanes[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] = values[0];
  std::int64_t begin = 0;
  for (; begin + kLanes <= count; begin += kLanes) {
    for (std::int64_t i = 0; i < kLanes; ++i) {
      lanes[i] = values[begin + i] > lanes[i] ? values[begin + i] : lanes[i];
    }
  }
  for (; begin < count; ++begin) lanes[0] = values[begin] > lanes[0] ? values[begin] : lanes[0];
  float largest = lanes[0];
  for (std::int64_t i = 1; i < kLanes; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  return largest;
}

// (1 + tanh(u)) / 2 is 1 / (1 + e^-2u); here -2u and its slope.
constexpr float kScale = -2 * 0.7978845608F;
constexpr float kCube = 0.044715F;

inline float gelu_share(float x) {
  return 1.0F / (1.0F + exponential(x * (kScale + kScale * kCube * x * x)));
}

void gelu(const float* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * gelu_share(from[i]);
}

/// With s the share: s + x s', where s' = 2 u' s (1 - s), which is zero long before kFar.
void gelu_gradient(const float* from, float* gradients, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    constexpr float kFar = 30.0F;
    const float share = gelu_share(from[i]);
    const float x = from[i] > kFar ? kFar : from[i] < -kFar ? -kFar : from[i];
    const float slope = -(kScale + 3 * kScale * kCube * x * x);
    gradients[i] *= share + x * slope * share * (1.0F - share);
  }
}

SoftmaxSum softmax(float* values, std::int64_t count, float scale, float total) {
  const float largest = largest_of(values, count);
  for (std::int64_t i = 0; i < count; ++i) values[i] = exponential(scale * (values[i] - largest));
  const float sum = sum_of_terms(count, [values](std::int64_t i) { return values[i]; });
  const float factor = total / sum;
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
  return {largest, sum};
}

void softmax_gradient(const float* shares, float* gradients, std::int64_t count, float scale) {
  const float mean =
      sum_of_terms(count, [shares, gradients](std::int64_t i) { return shares[i] * gradients[i]; });
  for (std::int64_t i = 0; i < count; ++i) {
    gradients[i] = scale * shares[i] * (gradients[i] - mean);
  }
}

float normalise(float* values, std::int64_t count, float least) {
  const auto size = static_cast<float>(count);
  const float mean = sum_of_terms(count, [values](std::int64_t i) { return values[i]; }) / size;
  for (std::int64_t i = 0; i < count; ++i) values[i] -= mean;
  const float variance =
      sum_of_terms(count, [values](std::int64_t i) { return values[i] * values[i]; }) / size;
  const float inverse = 1.0F / __builtin_sqrtf(variance + least);
  for (std::int64_t i = 0; i < count; ++i) values[i] *= inverse;
  return inverse;
}

/// With h the scaled gradient and n the normalised input: (h - mean(h) - n mean(h n)) / deviation.
void layer_norm_gradient(const LayerNormRow& row, float* to, std::int64_t count) {
  const auto size = static_cast<float>(count);
  const float* n = row.normalised;
  for (std::int64_t i = 0; i < count; ++i) to[i] = row.gradient[i] * row.scale[i];
  const float mean = sum_of_terms(count, [to](std::int64_t i) { return to[i]; }) / size;
  const float slope = sum_of_terms(count, [to, n](std::int64_t i) { return to[i] * n[i]; }) / size;
  const float inverse = row.inverse;
  for (std::int64_t i = 0; i < count; ++i) to[i] = inverse * (to[i] - mean - n[i] * slope);
}

void adam(const AdamStep& step, const AdamPlaces& places, std::int64_t count) {
  const AdamStep of = step;
  float* __restrict__ parameters = places.parameters;
  const float* __restrict__ gradients = places.gradients;
  float* __restrict__ means = places.means;
  float* __restrict__ squares = places.squares;
  for (std::int64_t i = 0; i < count; ++i) {
    const float kept = of.keep * parameters[i];
    const float gradient = gradients[i] + of.decay * kept;
    const float mean = means[i] + of.mean_share * (gradient - means[i]);
    const float square = of.square_keep * squares[i] + of.square_share * (gradient * gradient);
    means[i] = mean;
    squares[i] = square;
    parameters[i] = kept - of.rate * mean / (__builtin_sqrtf(square) / of.root + of.epsilon);
  }
}

}  // namespace

extern const Elementwise kElementwise{.gelu = gelu,
                                      .gelu_gradient = gelu_gradient,
                                      .softmax = softmax,
                                      .softmax_gradient = softmax_gradient,
                                      .normalise = normalise,
                                      .layer_norm_gradient = layer_norm_gradient,
                                      .adam = adam};

}  // namespace dapple::nn::DAPPLE_KERNELS
