// simulate --layout and --layouts: plans from layouts in words (interop/plans/layout.h), without a
// plan file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "app/request/inputs.h"
#include "dapple/command_line/console.h"
#include "dapple/interop/plans/layout.h"
#include "dapple/plan/runtime.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::app {

/// The model and the topology that layouts of one form of parallelism are for.
struct GroupedGround {
  /// A document without a plan.
  PlanDocument document;
  Topology topology;
};

/// The model and the topology that layouts are for.
struct LayoutGround {
  ModelProfile profile;
  Topology topology;
  /// The name of the topology's file.
  std::string topology_source;
  interop::ForeignPlanOptions options;
  /// The runtime that layouts are for, whose memory the profile and the topology have.
  std::optional<Runtime> runtime = {};
  /// What was made of the above, by form of parallelism.
  std::map<Parallelism, GroupedGround> grouped = {};
};
/// Loads the files. `global_batch` replaces that of the profile; `time_scale` is for kinds of
/// device that have none. A runtime gives plans its own depths.
LayoutGround load_layout_ground(const std::string& model, const std::string& topology,
                                const std::optional<std::int64_t>& global_batch,
                                const std::optional<Factor>& time_scale,
                                const std::optional<Runtime>& runtime);

/// Returns the plan of a layout, which has no figures yet, and the topology that its devices are
/// of. Throws Error(BadInput) if it is not valid or cannot be costed.
Subject subject_of_layout(const interop::Layout& layout, LayoutGround& ground);

/// Simulates every layout of a table and prints a row for each, as CSV or for people. A layout with
/// a fault does not prevent simulating the others: its row has the fault, which is also an error
/// message. Returns the exit code.
int simulate_table(const std::string& path, LayoutGround& ground, SimulationMode mode, bool is_csv,
                   command_line::Console& console);

}  // namespace dapple::app
