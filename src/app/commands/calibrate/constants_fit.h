// Fits the constants of a calibration to measured runs, and says how far they can be told apart.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "dapple/estimate/gpu.h"

namespace dapple::app {

/// A constant that may be fitted.
enum class FittedConstant { Matrix, Attention, Memory, LaunchFloor, CollectiveFloor };

inline constexpr FittedConstant kFittedConstants[] = {
    FittedConstant::Matrix, FittedConstant::Attention, FittedConstant::Memory,
    FittedConstant::LaunchFloor, FittedConstant::CollectiveFloor};

/// Returns "matrix", "attention", "memory", "launch_floor" or "collective_floor".
std::string to_string(FittedConstant constant);

/// Returns log(estimated / measured) of every run by a calibration.
using RunErrors = std::function<std::vector<double>(const estimate::Calibration&)>;

/// Returns the calibration with the least sum of Huber's loss (1964) of the errors of the runs that
/// count: the square of errors up to 0.05, and of larger ones what is in proportion to their
/// size, as measured runs have outliers. It is found by a pattern search (Hooke and Jeeves 1961)
/// over the constants: fractions in steps of their logarithm, which stay at most 1, floors in steps
/// of a time. It starts at `start`, and ends where no step of 0.1 % or 0.5 us makes the sum less.
/// Deterministic; a local minimum.
estimate::Calibration fitted(const estimate::Calibration& start,
                             const std::vector<FittedConstant>& constants, const RunErrors& errors,
                             const std::vector<bool>& counts);

/// Whether the constant is as large, or a floor as small, as it may be.
bool is_at_limit(const estimate::Calibration& calibration, FittedConstant constant);

/// How the runs determine the constants.
struct FitCertainty {
  /// The ratio of the largest and the least singular value of the errors' derivatives, each column
  /// by the step of its constant; infinite if some constant changes no run.
  double condition = 1;
  /// By constant, the run whose error it changes most.
  std::vector<std::size_t> pinned_by;
  /// By constant, whether it changes any run by more than a hundredth of its step.
  std::vector<bool> matters;
};
FitCertainty certainty_of(const estimate::Calibration& calibration,
                          const std::vector<FittedConstant>& constants, const RunErrors& errors);

}  // namespace dapple::app
