#include "dapple/cost/memory.h"

#include <algorithm>

#include "dapple/cost/plan_cost.h"

namespace dapple {

std::vector<MemoryShortage> memory_shortages(const PlanCost& costs) {
  std::vector<MemoryShortage> shortages;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    for (const ReplicaCost& replica : costs.stages[s].replicas) {
      if (replica.memory.peak() <= replica.memory_limit) continue;
      shortages.push_back({.device = replica.device,
                           .stage = index_at<StageIndex>(s),
                           .needed = replica.memory.peak(),
                           .limit = replica.memory_limit});
    }
  }
  std::stable_sort(shortages.begin(), shortages.end(),
                   [](const auto& a, const auto& b) { return a.missing() > b.missing(); });
  return shortages;
}

}  // namespace dapple
