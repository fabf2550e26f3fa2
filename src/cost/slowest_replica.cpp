#include "cost/slowest_replica.h"

#include <algorithm>
#include <cstddef>

#include "dapple/cost/plan_cost.h"

namespace dapple {

void raise_to(std::vector<Duration>& moments, const std::vector<Duration>& others) {
  moments.resize(others.size());
  for (std::size_t k = 0; k < others.size(); ++k) moments[k] = std::max(moments[k], others[k]);
}

bool has_traffic(const StageCost& stage) {
  return std::any_of(stage.replicas.begin(), stage.replicas.end(),
                     [](const ReplicaCost& replica) { return replica.traffic != StageTraffic{}; });
}

bool has_traffic(const PlanCost& costs) {
  return std::any_of(costs.stages.begin(), costs.stages.end(),
                     [](const StageCost& stage) { return has_traffic(stage); });
}

void slow_down_to(StageCost& stage, const ReplicaCost& replica, Duration recomputation) {
  stage.forward = std::max(stage.forward, replica.forward);
  stage.backward = std::max(stage.backward, replica.backward);
  stage.recomputation = std::max(stage.recomputation, recomputation);
  stage.input_gradient = std::max(stage.input_gradient, replica.input_gradient);
  stage.weight_gradient =
      std::max(stage.weight_gradient, replica.backward - replica.input_gradient);
}

}  // namespace dapple
