// dapple-comparison/1: two plans costed alike, for programs. What report/comparison.h says in
// words, whole: no rounding, no line left out.
#pragma once

#include <string>

#include "dapple/plan/comparison.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::io {

struct ComparisonDocument {
  std::string tool;  // "dapple-plan 0.1.0"
  const ComparedPair& pair;
  SimulationMode mode;  // in which both were simulated
};

/// Canonical: the same content gives the same bytes. O(as difference() + devices). Requires: both
/// plans valid on the pair's profile and topology.
std::string write_comparison_json(const ComparisonDocument& document);

}  // namespace dapple::io
