// Quantities whose type states their unit. All are integers, so that sums and maxima are exact and
// plans are byte-identical across compilers, runs and thread counts. Each division rounds once, in
// the function that performs it, whose comment states the direction.
//
// Magnitudes: readers accept at most kMaxCount for any one figure, and check_magnitudes() (cost)
// rejects a problem whose sums could exceed 63 bits; arithmetic after that is not checked again.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace dapple {

/// Largest value of one figure in a file (nanoseconds, bytes, bytes per second, samples).
inline constexpr std::int64_t kMaxCount = 1'000'000'000'000'000;  // 10^15

struct Bytes {
  std::int64_t count = 0;

  /// More than any size that is computed: where nothing fits, and the start of a minimum. It may be
  /// compared, not added to.
  static constexpr Bytes infinite() { return {std::numeric_limits<std::int64_t>::max()}; }
  constexpr bool is_infinite() const { return count == infinite().count; }

  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  constexpr Bytes& operator+=(Bytes other) {
    count += other.count;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count -= other.count;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
  friend constexpr Bytes operator*(std::int64_t factor, Bytes b) { return {factor * b.count}; }
};

/// A length of time, or a moment measured from the start of the iteration.
struct Duration {
  std::int64_t ns = 0;

  /// Longer than any time that is computed: where no plan fits, and the start of a minimum. It may
  /// be compared, not added to.
  static constexpr Duration infinite() { return {std::numeric_limits<std::int64_t>::max()}; }
  constexpr bool is_infinite() const { return ns == infinite().ns; }

  friend constexpr auto operator<=>(Duration, Duration) = default;
  constexpr Duration& operator+=(Duration other) {
    ns += other.ns;
    return *this;
  }
  constexpr Duration& operator-=(Duration other) {
    ns -= other.ns;
    return *this;
  }
  friend constexpr Duration operator+(Duration a, Duration b) { return {a.ns + b.ns}; }
  friend constexpr Duration operator-(Duration a, Duration b) { return {a.ns - b.ns}; }
  friend constexpr Duration operator*(std::int64_t factor, Duration d) { return {factor * d.ns}; }
};

/// The bandwidth of one direction at one end of a link.
struct Bandwidth {
  std::int64_t bytes_per_second = 0;

  friend constexpr auto operator<=>(Bandwidth, Bandwidth) = default;
  friend constexpr Bandwidth operator+(Bandwidth a, Bandwidth b) {
    return {a.bytes_per_second + b.bytes_per_second};
  }
};

/// An exact decimal factor with nine decimal places: 0.4 is 400,000,000 billionths.
struct Factor {
  std::int64_t billionths = 0;

  friend constexpr auto operator<=>(Factor, Factor) = default;
};
inline constexpr Factor kOne{1'000'000'000};

/// A type that holds any product of two figures.
using Wide = __int128;

/// Returns the floating-point number next to `number`, within a few units in the last place.
/// Requires: number >= 0.
inline double approximately(Wide number) {
  constexpr double kTwoTo64 = 18446744073709551616.0;
  const auto high = static_cast<std::uint64_t>(number >> 64);
  const auto low = static_cast<double>(static_cast<std::uint64_t>(number));
  return high == 0 ? low : static_cast<double>(high) * kTwoTo64 + low;
}

/// Returns floor(numerator / denominator). Requires: numerator >= 0, denominator > 0, and a result
/// within 63 bits.
///
/// The quotient is estimated in floating point and then corrected by what is left, exactly: many
/// processors take several times as long for a division of integers, above all of 128 bits.
constexpr std::int64_t divide_down(Wide numerator, Wide denominator) {
  if (std::is_constant_evaluated()) return static_cast<std::int64_t>(numerator / denominator);
  // Below it the estimate is off by one at most, as its relative error is below 2^-50.
  constexpr double kSure = 1125899906842624.0;  // 2^50
  const double estimate = approximately(numerator) / approximately(denominator);
  if (estimate >= kSure) return static_cast<std::int64_t>(numerator / denominator);
  const auto quotient = static_cast<std::int64_t>(estimate);
  const Wide left = numerator - Wide{quotient} * denominator;
  if (left < 0) return quotient - 1;
  return left >= denominator ? quotient + 1 : quotient;
}

/// Returns ceil(numerator / denominator). Requires: numerator >= 0, denominator > 0, and a result
/// within 63 bits.
constexpr std::int64_t divide_up(Wide numerator, Wide denominator) {
  return divide_down(numerator + denominator - 1, denominator);
}

/// Returns `size` times `factor`, rounded up to a whole byte. Requires: neither is negative.
constexpr Bytes scale_up(Bytes size, Factor factor) {
  if (factor.billionths % kOne.billionths == 0) {
    return {size.count * (factor.billionths / kOne.billionths)};
  }
  return {divide_up(Wide{size.count} * factor.billionths, kOne.billionths)};
}

/// Returns `time` times `factor`, rounded up to a whole nanosecond. Requires: neither is negative.
constexpr Duration scale_up(Duration time, Factor factor) {
  return {divide_up(Wide{time.ns} * factor.billionths, kOne.billionths)};
}

inline constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

/// The number of ticks per nanosecond; the times of links and shared flows are kept in ticks.
inline constexpr std::int64_t kTicksPerNanosecond = 1024;

/// A moment or a length of time in ticks of 1/1024 ns; 2^63 of them are 104 days.
struct Ticks {
  std::int64_t count = 0;

  /// Later than any moment that is computed, and the start of a minimum. It may be compared, not
  /// added to.
  static constexpr Ticks infinite() { return {std::numeric_limits<std::int64_t>::max()}; }

  friend constexpr auto operator<=>(Ticks, Ticks) = default;
  friend constexpr Ticks operator+(Ticks a, Ticks b) { return {a.count + b.count}; }
  friend constexpr Ticks operator-(Ticks a, Ticks b) { return {a.count - b.count}; }
};

/// Converts nanoseconds to ticks exactly. Requires: |time| below 2^53 ns, which are 104 days.
constexpr Ticks to_ticks(Duration time) {
  return {time.ns * kTicksPerNanosecond};
}

/// Returns the first whole nanosecond that is not before `time`. Requires: time.count >= 0.
constexpr Duration round_up(Ticks time) {
  return {time.count / kTicksPerNanosecond + (time.count % kTicksPerNanosecond > 0 ? 1 : 0)};
}

/// Returns how long `size` bytes keep a link of `bandwidth` busy, rounded up to a tick.
/// Requires: size.count >= 0, bandwidth.bytes_per_second > 0.
constexpr Ticks occupation(Bytes size, Bandwidth bandwidth) {
  return {divide_up(Wide{size.count} * kNanosecondsPerSecond * kTicksPerNanosecond,
                    bandwidth.bytes_per_second)};
}

}  // namespace dapple
