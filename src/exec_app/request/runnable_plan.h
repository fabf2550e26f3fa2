// A plan file that can be run, with its topology.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "dapple/plan/document.h"
#include "dapple/topology/topology.h"

namespace dapple::exec_app {

struct RunnablePlan {
  /// Loads a plan file; "-" is stdin. Throws Error(BadInput) if the plan cannot be run; does not
  /// check memory.
  explicit RunnablePlan(const std::string& path);

  /// The number of devices that the plan uses, which may be groups.
  std::size_t device_count() const;
  /// The number of ranks of which all of these consist in training.
  std::size_t rank_count() const;

  PlanDocument document;
  /// The topology of the plan's devices, and that of the single ones of which they consist if they
  /// are groups.
  Topology topology;
  Topology single_devices;
};

/// Logs, for --verbose, which device of the plan each thread is and what it runs, where each of the
/// plan's devices has `ranks` threads.
void log_threads(const RunnablePlan& plan, std::int64_t ranks = 1);

}  // namespace dapple::exec_app
