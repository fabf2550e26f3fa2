// What runs would take by a calibration: each is estimated and simulated as `estimate` and
// `simulate --layout` do it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/calibrate/measured_runs.h"
#include "app/commands/simulate/layouts.h"
#include "dapple/estimate/gpu.h"

namespace dapple::app {

/// What a run would take.
struct RunPrice {
  Duration iteration;
  /// The most memory of any device, or of any of the last stage, as the run states it.
  Bytes memory;
};

/// Prices runs on one kind of GPU.
class RunPricing {
 public:
  /// Reads the files that the runs name. Throws Error(BadInput) for faults of these, of options
  /// that do not fit a model, of layouts, and of frameworks that the table does not have, each with
  /// the run's line.
  RunPricing(std::vector<MeasuredRun> runs, const estimate::Gpu& gpu,
             const estimate::GpuTable& table);

  const std::vector<MeasuredRun>& runs() const { return runs_; }

  /// Returns the price of every run, in their order. O(simulations of all).
  std::vector<RunPrice> prices(const estimate::Calibration& calibration) const;

 private:
  void require_gpu(const MeasuredRun& run) const;
  RunPrice price(const MeasuredRun& run, LayoutGround& ground) const;
  ModelProfile profile_of(const MeasuredRun& run, const estimate::Calibration& calibration) const;

  std::vector<MeasuredRun> runs_;
  estimate::Gpu gpu_;
  // Models by file, and topologies by file and runtime.
  std::map<std::string, estimate::Architecture> models_;
  std::map<std::pair<std::string, std::string>, Topology> topologies_;
  // Runs that have a profile and a topology in common, by their positions.
  std::vector<std::vector<std::size_t>> alike_;
};

}  // namespace dapple::app
