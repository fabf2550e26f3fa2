// A plan as other runtimes and launchers take it. What one of them cannot express is refused by
// name and place, never left out; what it does a little otherwise is told as a warning.
//
// Ranks: stage by stage, of each its replicas in their order, so that rank = stage * replicas +
// replica where all stages have as many. Devices that hold several stages are one rank.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/plan/plan.h"
#include "dapple/topology/topology.h"

namespace dapple {

struct ExportSubject {
  const PlanDocument& document;
  const Topology& topology;
};

struct Export {
  std::string text;
  std::vector<std::string> warnings;
};

struct ExportTarget {
  std::string_view name;    // "megatron"
  std::string_view ending;  // of a file's name, ".megatron.sh"
  std::string_view what;    // in a few words
  /// Throws Error(BadInput) without a source, its places JSON pointers into the plan. Requires: a
  /// sound plan.
  Export (*make)(const ExportSubject& subject);
};

/// All of them, in the order in which they are shown.
const std::vector<ExportTarget>& export_targets();

/// The device of each rank. O(stages + devices).
std::vector<DeviceIndex> devices_by_rank(const Plan& plan);

}  // namespace dapple
