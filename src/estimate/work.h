// What a part of a layer has to do for one sample, and how long a GPU takes for it
// (docs/estimate.md, section 2).
#pragma once

#include <algorithm>
#include <cstdint>

#include "dapple/core/quantity.h"
#include "dapple/estimate/gpu.h"

namespace dapple::estimate {

/// Returns the figure, or one that no profile may have if it is larger.
inline std::int64_t capped(Wide figure) {
  return static_cast<std::int64_t>(std::min<Wide>(figure, Wide{kMaxCount} + 1));
}

struct Work {
  /// Floating-point operations of products by weights, those of the core of attention, and bytes
  /// that pass the GPU's memory, per sample.
  Wide operations = 0;
  Wide core = 0;
  Wide moved = 0;
  /// Bytes that pass once whatever the batch.
  Wide weights = 0;

  Work& operator+=(const Work& other) {
    operations += other.operations;
    core += other.core;
    moved += other.moved;
    weights += other.weights;
    return *this;
  }
  friend Work operator+(Work a, const Work& b) { return a += b; }
  friend Work operator*(std::int64_t factor, const Work& work) {
    return {factor * work.operations, factor * work.core, factor * work.moved,
            factor * work.weights};
  }
};

/// The product of a matrix with `rows` rows per sample by a matrix of weights of inner x columns
/// numbers.
struct Product {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
};

inline Work work_of(const Product& product, std::int64_t bytes_of_number) {
  const Wide rows = product.rows;
  return {.operations = 2 * rows * product.columns * product.inner,
          .core = 0,
          .moved = bytes_of_number * rows * (Wide{product.inner} + product.columns),
          .weights = Wide{bytes_of_number} * product.inner * product.columns};
}

/// Returns the work of reading or writing so many bytes per sample.
inline Work pass(Wide bytes) {
  return {.operations = 0, .core = 0, .moved = bytes, .weights = 0};
}

/// The rates at which a GPU works, as calibrated.
struct Rates {
  /// Operations per nanosecond of products and of attention's core, and bytes per second.
  std::int64_t operations = 1;
  std::int64_t core = 1;
  std::int64_t memory = 1;
  Duration launch_floor;
  Duration collective_floor;

  Rates(const Gpu& gpu, const Calibration& calibration, Precision precision)
      : operations(part_of(gpu.peak(precision).value_or(1), calibration.matrix)),
        core(part_of(gpu.peak(precision).value_or(1), calibration.attention)),
        memory(part_of(gpu.memory_bandwidth.bytes_per_second, calibration.memory)),
        launch_floor(calibration.launch_floor),
        collective_floor(calibration.collective_floor) {}

  /// Returns the time of the work for so many samples, rounded up, and without the floor: matrix
  /// units and memory are used one after another.
  Duration time_of_work(const Work& work, std::int64_t samples) const {
    const Wide bytes = work.moved * samples + work.weights;
    const Wide computing = (work.operations * samples + operations - 1) / operations +
                           (work.core * samples + core - 1) / core;
    const Wide moving = (bytes * kNanosecondsPerSecond + memory - 1) / memory;
    return {capped(computing + moving)};
  }

 private:
  static std::int64_t part_of(std::int64_t peak, Factor fraction) {
    return std::max<std::int64_t>(1,
                                  divide_down(Wide{peak} * fraction.billionths, kOne.billionths));
  }
};

}  // namespace dapple::estimate
