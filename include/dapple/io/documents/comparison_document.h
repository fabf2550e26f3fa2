// dapple-comparison/1: a comparison of two plans costed alike, for programs. It contains everything
// that report/comparison.h shows, without rounding or omissions.
#pragma once

#include <string>

#include "dapple/plan/comparison.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::io {

struct ComparisonDocument {
  /// The name and version of the tool, such as "dapple-plan 0.1.0".
  std::string tool;
  const ComparedPair& pair;
  /// The mode in which both plans were simulated.
  SimulationMode mode;
};

/// Returns the document in canonical form: the same content gives the same bytes. Takes as long as
/// difference(), plus O(devices). Requires: both plans are valid for the pair's profile and
/// topology.
std::string write_comparison_json(const ComparisonDocument& document);

}  // namespace dapple::io
