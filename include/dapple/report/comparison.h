// Two plans side by side, for a person.
#pragma once

#include <string>

#include "dapple/plan/plan.h"
#include "dapple/report/show.h"
#include "dapple/timeline/comparison.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// A plan as it was costed for the comparison, and what to call it.
struct ComparedPlan {
  std::string name;
  Plan plan;
  Prediction prediction;
};

/// Two plans, and what both were costed with.
struct ComparedPair {
  ComparedPlan first;
  ComparedPlan second;
  const ModelProfile& profile;
  const Topology& topology;
};

/// Headline figures of both with the second's difference, where the time of both goes, then stage
/// by stage: layers, devices, times and depth of each; stages are matched by number. Ends with what
/// the slower one loses by; says so when the plans are the same.
/// O(stages). Requires: both plans valid on that profile and topology.
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

}  // namespace dapple
