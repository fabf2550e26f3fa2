// A plan file that can be run, with its topology.
#pragma once

#include <cstddef>
#include <string>

#include "dapple/plan/document.h"
#include "dapple/topology/topology.h"

namespace dapple::exec_app {

struct RunnablePlan {
  /// Loads a plan file; "-" is stdin. Throws Error(BadInput) if the plan cannot be run; does not
  /// check memory.
  explicit RunnablePlan(const std::string& path);

  /// The number of devices that the plan uses.
  std::size_t device_count() const;

  PlanDocument document;
  Topology topology;
};

/// Logs, for --verbose, which device of the plan each thread is and what it runs.
void log_threads(const RunnablePlan& plan);

}  // namespace dapple::exec_app
