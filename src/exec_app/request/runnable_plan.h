// A plan file that can be run, with its topology.
#pragma once

#include <cstddef>
#include <string>

#include "dapple/plan/document.h"
#include "dapple/topology/topology.h"

namespace dapple::exec_app {

struct RunnablePlan {
  /// Throws Error(BadInput) where the plan cannot be run; memory is not looked at. "-" is stdin.
  explicit RunnablePlan(const std::string& path);

  /// Devices that it uses.
  std::size_t device_count() const;

  PlanDocument document;
  Topology topology;
};

/// Logs, for --verbose, which thread is which device of the plan and what it runs.
void log_threads(const RunnablePlan& plan);

}  // namespace dapple::exec_app
