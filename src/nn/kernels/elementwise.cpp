// Elementwise functions and sums, written for the compiler to vectorise. Each performs its
// operations in a fixed order, with sums split into kLanes partial sums, so that its results do not
// depend on the instruction set. No header that defines functions may be included here (see
// ../kernels.h).
#include "nn/kernels.h"

namespace dapple::nn::DAPPLE_KERNELS {
namespace {

constexpr std::int64_t kLanes = 16;

/// Returns e^x with a relative error of 1e-7. The result is zero below -87, where e^x approaches
/// the least normal number, and infinite above 88.
///
/// x is split into n ln 2 + rest with an integer n and |rest| <= ln 2 / 2, for which eight terms of
/// the series are accurate to 6e-9. ln 2 is split into two parts, of which the first has so few
/// bits that its product with n is exact (Cody and Waite 1980).
inline float exponential(float x) {
  constexpr float kLeast = -87.0F;
  constexpr float kMost = 88.0F;
  // 1.5 * 2^23, whose last bit is worth one: a number added to it is rounded to an integer.
  constexpr float kRounds = 12582912.0F;
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
  // The exponent field of 2^n is n + 127, and the last bits of `shifted` are n.
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

/// Returns the sum of term(0) to term(count - 1).
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

// The coefficients of -2u in x: (1 + tanh(u)) / 2 = 1 / (1 + e^-2u), -2u = kScale (x + kCube x^3).
constexpr float kScale = -2 * 0.7978845608F;
constexpr float kCube = 0.044715F;

inline float gelu_share(float x) {
  return 1.0F / (1.0F + exponential(x * (kScale + kScale * kCube * x * x)));
}

void gelu(const float* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * gelu_share(from[i]);
}

/// The derivative is s + x s', where s is gelu_share(x) and s' = 2 u' s (1 - s), which vanishes
/// long before |x| reaches kFar.
void gelu_gradient(const float* from, float* gradients, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    constexpr float kFar = 30.0F;
    const float share = gelu_share(from[i]);
    const float x = from[i] > kFar ? kFar : from[i] < -kFar ? -kFar : from[i];
    const float slope = -(kScale + 3 * kScale * kCube * x * x);
    gradients[i] *= share + x * slope * share * (1.0F - share);
  }
}

inline float logistic(float x) {
  return 1.0F / (1.0F + exponential(-x));
}

void swiglu(const SwiGluRow& row, float* to, std::int64_t count) {
  const float* gates = row.gates;
  const float* values = row.values;
  for (std::int64_t i = 0; i < count; ++i) to[i] = gates[i] * logistic(gates[i]) * values[i];
}

/// The derivative of x s with s = logistic(x) is s + x s (1 - s).
void swiglu_gradient(const SwiGluRow& row, const float* gradients, const SwiGluPlaces& to,
                     std::int64_t count) {
  const float* gates = row.gates;
  const float* values = row.values;
  float* __restrict__ of_gates = to.gates;
  float* __restrict__ of_values = to.values;
  for (std::int64_t i = 0; i < count; ++i) {
    const float share = logistic(gates[i]);
    const float silu = gates[i] * share;
    of_gates[i] = gradients[i] * values[i] * (share + silu * (1.0F - share));
    of_values[i] = gradients[i] * silu;
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

float normalise_square(float* values, std::int64_t count, float least) {
  const float square =
      sum_of_terms(count, [values](std::int64_t i) { return values[i] * values[i]; }) /
      static_cast<float>(count);
  const float inverse = 1.0F / __builtin_sqrtf(square + least);
  for (std::int64_t i = 0; i < count; ++i) values[i] *= inverse;
  return inverse;
}

float normalise(float* values, std::int64_t count, float least) {
  const auto size = static_cast<float>(count);
  const float mean = sum_of_terms(count, [values](std::int64_t i) { return values[i]; }) / size;
  for (std::int64_t i = 0; i < count; ++i) values[i] -= mean;
  return normalise_square(values, count, least);
}

/// Computes (h - n mean(h n)) / deviation, where h is the scaled gradient and n the normalised
/// input, with h less its mean if the norm is centred.
template <bool kIsCentred>
void norm_gradient(const NormRow& row, float* to, std::int64_t count) {
  const auto size = static_cast<float>(count);
  const float* n = row.normalised;
  for (std::int64_t i = 0; i < count; ++i) to[i] = row.gradient[i] * row.scale[i];
  float mean = 0;
  if constexpr (kIsCentred) {
    mean = sum_of_terms(count, [to](std::int64_t i) { return to[i]; }) / size;
  }
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
                                      .swiglu = swiglu,
                                      .swiglu_gradient = swiglu_gradient,
                                      .softmax = softmax,
                                      .softmax_gradient = softmax_gradient,
                                      .normalise = normalise,
                                      .normalise_square = normalise_square,
                                      .layer_norm_gradient = norm_gradient<true>,
                                      .rms_norm_gradient = norm_gradient<false>,
                                      .adam = adam};

}  // namespace dapple::nn::DAPPLE_KERNELS
