// dapple-measurement/1: a plan's predicted timeline and a measured one, for programs. What
// report/comparison.h says in words, whole.
#pragma once

#include <string>

#include "dapple/timeline/comparison.h"

namespace dapple::io {

struct MeasurementDocument {
  std::string tool;         // "dapple-plan 0.1.0"
  std::string plan;         // name of its file
  std::string plan_sha256;  // hash_of() its document
  std::string timeline;     // name of its file
  const TimelineComparison& comparison;
};

/// Canonical: the same content gives the same bytes. O(kinds of actions).
std::string write_measurement_json(const MeasurementDocument& document);

}  // namespace dapple::io
