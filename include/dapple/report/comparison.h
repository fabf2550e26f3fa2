// Shows two plans, or a prediction and a measurement, side by side.
#pragma once

#include <string>

#include "dapple/plan/comparison.h"
#include "dapple/report/show.h"
#include "dapple/timeline/comparison.h"

namespace dapple::report {

/// Returns a comparison of two plans: the headline figures of both with the difference of the
/// second, the breakdown of both iterations, the layers and devices that moved to other stages, the
/// memory of the devices, and the corresponding stages side by side with their layers, devices,
/// times and depths. It ends with the causes for which the slower plan loses, or states that the
/// plans are the same. Lines are laid out for at most 80 columns, whatever the style's width.
/// O(stages of one * stages of the other + layers + devices). Requires: both plans are valid for
/// the pair's profile and topology.
std::string write_comparison(const ComparedPair& pair, const TextStyle& style);

/// A comparison of a plan's predicted timeline with a measured one.
struct MeasuredPair {
  /// The names of the files of the plan and of the measured timeline.
  std::string plan;
  std::string measurement;
  const TimelineComparison& comparison;
};

/// Returns the predicted and measured durations of the actions by stage and kind, and the kinds
/// that made the iteration longer than predicted. A transfer is named by both of its stages.
std::string write_measured(const MeasuredPair& pair, const TextStyle& style);

}  // namespace dapple::report
