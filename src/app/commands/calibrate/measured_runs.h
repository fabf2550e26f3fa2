// A table of training runs that were measured: what was trained, on what, and how long an iteration
// took. It is a CSV file whose first row names the columns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/estimate/estimate.h"
#include "dapple/interop/plans/layout.h"
#include "dapple/plan/runtime.h"

namespace dapple::app {

struct MeasuredRun {
  /// Unique in the table.
  std::string id;
  /// Runs of one group are left out together: those of one model on one number of GPUs.
  std::string group;
  /// The files of the model's configuration and of the topology, beside the table.
  std::string configuration;
  std::string topology;
  estimate::EstimateOptions options;
  /// The name of the framework, whose figures are not in `options` yet; empty if it is not stated.
  std::string framework;
  /// The runtime that ran it; without one, transfers and reductions are hidden as far as possible.
  std::optional<Runtime> runtime;
  interop::Layout layout;
  Duration iteration;
  /// The most memory of any device, if it was measured; of any of the last stage, where that is so.
  std::optional<Bytes> memory;
  bool is_memory_of_last_stage = false;
};

/// Whether the text is a name as files may have it: 1 to 200 characters that are printable.
bool is_plain_name(const std::string& text);

/// The columns that are no words of layouts, in the order in which help lists them.
std::vector<std::string> run_columns();

/// Reads a table. Names of files are relative to the folder of the table, `path`. Throws
/// Error(BadInput) with the lines of the first faults: columns that are unknown, missing or given
/// twice, rows of another length, and values that are none. O(length).
std::vector<MeasuredRun> read_runs(const std::string& text, const std::string& path);

}  // namespace dapple::app
