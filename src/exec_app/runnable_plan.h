// A plan file that can be run, with its topology.
#pragma once

#include <string>

#include "dapple/plan/plan.h"
#include "dapple/topology/topology.h"

namespace dapple {

struct RunnablePlan {
  /// Throws Error(BadInput) where the plan cannot be run; memory is not looked at. "-" is stdin.
  explicit RunnablePlan(const std::string& path);

  PlanDocument document;
  Topology topology;
};

}  // namespace dapple
