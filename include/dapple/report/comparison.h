// Two plans side by side, for a person.
#pragma once

#include <string>

#include "dapple/plan/comparison.h"
#include "dapple/report/show.h"
#include "dapple/timeline/comparison.h"

namespace dapple::report {

/// Headline figures of both with the second's difference, where the time of both goes, what is in
/// other stages and on other devices than in the first, the memory of devices, then stages side by
/// side as they correspond: layers, devices, times and depth of each. Ends with what the slower one
/// loses by; says so when the plans are the same. At most 80 columns, whatever the style.
/// O(stages of one times stages of the other + layers + devices). Requires: both plans valid on
/// that profile and topology.
std::string write_comparison(const ComparedPair& pair, const TextStyle& style);

/// A plan's predicted timeline and a measured one, named as their files are.
struct MeasuredPair {
  std::string plan;
  std::string measurement;
  const TimelineComparison& comparison;
};

/// Stage by stage and kind by kind how long actions were to take and took, and the kinds that made
/// the iteration longer than foreseen, by name; a transfer is named by both its stages.
std::string write_measured(const MeasuredPair& pair, const TextStyle& style);

}  // namespace dapple::report
