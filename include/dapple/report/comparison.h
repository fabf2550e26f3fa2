// Two plans side by side, for a person.
#pragma once

#include <string>

#include "dapple/plan/plan.h"
#include "dapple/report/show.h"
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

}  // namespace dapple
