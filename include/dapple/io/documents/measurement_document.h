// dapple-measurement/1: a comparison of a plan's predicted timeline with a measured one, for
// programs. It contains everything that report/comparison.h shows.
#pragma once

#include <string>

#include "dapple/timeline/comparison.h"

namespace dapple::io {

struct MeasurementDocument {
  /// The name and version of the tool, such as "dapple-plan 0.1.0".
  std::string tool;
  /// The name of the plan's file.
  std::string plan;
  /// hash_of() the plan's document.
  std::string plan_sha256;
  /// The name of the measured timeline's file.
  std::string timeline;
  const TimelineComparison& comparison;
};

/// Returns the document in canonical form: the same content gives the same bytes. O(kinds of
/// actions).
std::string write_measurement_json(const MeasurementDocument& document);

}  // namespace dapple::io
