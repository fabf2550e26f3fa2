#include "dapple/planner/candidates/plan_pool.h"

#include <algorithm>

namespace dapple::planner {

bool have_same_shape(const Plan& a, const Plan& b) {
  return a.micro_batch_size == b.micro_batch_size && a.gradients == b.gradients &&
         a.chunks_per_device == b.chunks_per_device &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [](const StagePlan& x, const StagePlan& y) {
                      return x.layers == y.layers && x.devices.size() == y.devices.size() &&
                             x.recompute == y.recompute && x.form == y.form &&
                             x.samples == y.samples;
                    });
}

void PlanPool::take(const SimulatedPlan& simulated) {
  if (!simulated.feasible()) return;
  std::vector<SimulatedPlan>& plans = plans_[simulated.plan.family];
  if (plans.size() == kMost && better(plans.back(), simulated)) return;
  const auto same = std::find_if(plans.begin(), plans.end(), [&](const SimulatedPlan& some) {
    return have_same_shape(some.plan, simulated.plan);
  });
  if (same != plans.end()) {
    if (!better(simulated, *same)) return;
    plans.erase(same);
  }
  plans.insert(std::upper_bound(plans.begin(), plans.end(), simulated, better), simulated);
  if (plans.size() > kMost) plans.pop_back();
}

std::vector<SimulatedPlan> PlanPool::plans_of(ScheduleFamily family) const {
  const auto found = plans_.find(family);
  return found == plans_.end() ? std::vector<SimulatedPlan>{} : found->second;
}

void keep_in(PlanPool* pool, const Score& score) {
  if (pool == nullptr) return;
  pool->take(score.best);
  pool->take(score.nearest);
}

}  // namespace dapple::planner
