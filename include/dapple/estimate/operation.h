// Single operations of a layer, and how long a GPU takes for one by a calibration
// (docs/estimate.md, section 2).
#pragma once

#include <cstdint>

#include "dapple/core/quantity.h"
#include "dapple/estimate/estimate.h"
#include "dapple/estimate/gpu.h"

namespace dapple::estimate {

/// The product of a matrix of rows x inner numbers by one of inner x columns, or else a pass over
/// `numbers` numbers that are read or written.
struct Operation {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  std::int64_t numbers = 0;
};

/// Returns the time of the operation by the calibration's fractions, without its floors. O(1).
/// Requires: the GPU has a peak in the precision.
Duration operation_time(const Operation& operation, const Gpu& gpu, const Calibration& calibration,
                        Precision precision);

}  // namespace dapple::estimate
