#include "app/commands/calibrate/constants_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>

#include "dapple/core/error.h"

namespace dapple::app {
namespace {

/// The unit of steps: a fraction changes by exp(step), a floor by step times this, or times what it
/// is if that is more.
constexpr double kFloorUnit = 500'000;  // ns
constexpr double kFirstStep = 0.2;
constexpr double kLastStep = 0.001;
/// The largest floor that is tried, in nanoseconds.
constexpr double kMostFloor = 1e12;
/// The least fraction that is tried.
constexpr double kLeastFraction = 0.001;

bool is_fraction(FittedConstant constant) {
  return constant != FittedConstant::LaunchFloor && constant != FittedConstant::CollectiveFloor;
}

Factor& fraction_of(estimate::Calibration& calibration, FittedConstant constant) {
  switch (constant) {
    case FittedConstant::Matrix:
      return calibration.matrix;
    case FittedConstant::Attention:
      return calibration.attention;
    default:
      return calibration.memory;
  }
}

Duration& floor_of(estimate::Calibration& calibration, FittedConstant constant) {
  return constant == FittedConstant::LaunchFloor ? calibration.launch_floor
                                                 : calibration.collective_floor;
}

/// Returns the calibration with one constant changed by a step.
estimate::Calibration stepped(estimate::Calibration calibration, FittedConstant constant,
                              double step) {
  if (is_fraction(constant)) {
    Factor& fraction = fraction_of(calibration, constant);
    const double value = static_cast<double>(fraction.billionths) /
                         static_cast<double>(kOne.billionths) * std::exp(step);
    const double kept = std::clamp(value, kLeastFraction, 1.0);
    fraction = {std::llround(kept * static_cast<double>(kOne.billionths))};
  } else {
    Duration& floor = floor_of(calibration, constant);
    const auto value = static_cast<double>(floor.ns);
    floor = {std::llround(std::clamp(value + step * std::max(kFloorUnit, value), 0.0, kMostFloor))};
  }
  return calibration;
}

/// The square of an error, and beyond kOutlier what grows as the error does, without a step. Two
/// measurements of one plan differ by about as much.
double loss_of(double error) {
  constexpr double kOutlier = 0.05;
  const double size = std::abs(error);
  return size <= kOutlier ? size * size : kOutlier * (2 * size - kOutlier);
}

double sum_of_losses(const std::vector<double>& errors, const std::vector<bool>& counts) {
  double sum = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (counts[i]) sum += loss_of(errors[i]);
  }
  return sum;
}

bool are_equal(const estimate::Calibration& a, const estimate::Calibration& b) {
  return a.matrix == b.matrix && a.attention == b.attention && a.memory == b.memory &&
         a.launch_floor == b.launch_floor && a.collective_floor == b.collective_floor;
}

}  // namespace

std::string to_string(FittedConstant constant) {
  switch (constant) {
    case FittedConstant::Matrix:
      return "matrix";
    case FittedConstant::Attention:
      return "attention";
    case FittedConstant::Memory:
      return "memory";
    case FittedConstant::LaunchFloor:
      return "launch_floor";
    case FittedConstant::CollectiveFloor:
      return "collective_floor";
  }
  check(false, "a constant without a name");
  return {};
}

estimate::Calibration fitted(const estimate::Calibration& start,
                             const std::vector<FittedConstant>& constants, const RunErrors& errors,
                             const std::vector<bool>& counts) {
  estimate::Calibration best = start;
  double least = sum_of_losses(errors(best), counts);
  for (double step = kFirstStep; step >= kLastStep;) {
    bool is_better = false;
    for (const FittedConstant constant : constants) {
      for (const double sign : {1.0, -1.0}) {
        // A step that helps is made again, as far as it helps.
        while (true) {
          const estimate::Calibration next = stepped(best, constant, sign * step);
          if (are_equal(next, best)) break;
          const double sum = sum_of_losses(errors(next), counts);
          if (sum >= least) break;
          best = next;
          least = sum;
          is_better = true;
        }
      }
    }
    if (!is_better) step /= 2;
  }
  return best;
}

bool is_at_limit(const estimate::Calibration& calibration, FittedConstant constant) {
  estimate::Calibration copy = calibration;
  return is_fraction(constant) ? fraction_of(copy, constant) == kOne
                               : floor_of(copy, constant) == Duration{};
}

FitCertainty certainty_of(const estimate::Calibration& calibration,
                          const std::vector<FittedConstant>& constants, const RunErrors& errors) {
  constexpr double kStep = 0.02;
  constexpr double kMatters = 0.01;
  const std::vector<double> here = errors(calibration);
  Eigen::MatrixXd slopes(static_cast<Eigen::Index>(here.size()),
                         static_cast<Eigen::Index>(constants.size()));
  FitCertainty certainty;
  for (std::size_t c = 0; c < constants.size(); ++c) {
    // Upwards only, as floors end at 0; a fraction that is at its end goes down.
    const bool is_at_end = is_fraction(constants[c]) &&
                           are_equal(stepped(calibration, constants[c], kStep), calibration);
    const double step = is_at_end ? -kStep : kStep;
    const std::vector<double> there = errors(stepped(calibration, constants[c], step));
    std::size_t most = 0;
    for (std::size_t i = 0; i < here.size(); ++i) {
      const double slope = (there[i] - here[i]) / step;
      slopes(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(c)) = slope;
      const double of_most = slopes(static_cast<Eigen::Index>(most), static_cast<Eigen::Index>(c));
      if (std::abs(slope) > std::abs(of_most)) most = i;
    }
    certainty.pinned_by.push_back(most);
    certainty.matters.push_back(
        std::abs(slopes(static_cast<Eigen::Index>(most), static_cast<Eigen::Index>(c))) > kMatters);
  }
  const Eigen::VectorXd values = Eigen::JacobiSVD<Eigen::MatrixXd>(slopes).singularValues();
  const double smallest = values.minCoeff();
  certainty.condition =
      smallest > 0 ? values.maxCoeff() / smallest : std::numeric_limits<double>::infinity();
  return certainty;
}

}  // namespace dapple::app
