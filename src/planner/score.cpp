#include "dapple/planner/score.h"

#include <tuple>

namespace dapple {
namespace {

std::int64_t devices_used(const Plan& plan) {
  std::int64_t used = 0;
  for (const StagePlan& stage : plan.stages)
    used += static_cast<std::int64_t>(stage.devices.size());
  return used;
}

}  // namespace

bool better(const Scored& a, const Scored& b) {
  if (a.iteration != b.iteration) return a.iteration < b.iteration;
  if (!a.feasible()) return false;
  return std::tuple(devices_used(a.plan), a.plan.stages.size(), a.order, a.plan.warmup_depths) <
         std::tuple(devices_used(b.plan), b.plan.stages.size(), b.order, b.plan.warmup_depths);
}

namespace {

Recorded run_and_count(const Plan& plan, const SimulationGround& ground, bool record,
                       Score& score) {
  Recorded recorded{.schedule = generate(plan, ground.mode.replicas), .result = {}};
  for (const Lane& lane : recorded.schedule.lanes) {
    score.actions += static_cast<std::int64_t>(lane.actions.size());
  }
  ++score.simulated;
  recorded.result = simulate(
      recorded.schedule, ground.costs, ground.topology,
      {.contention = ground.mode.contention, .record = record, .should_stop = ground.should_stop});
  return recorded;
}

}  // namespace

Duration simulate_and_count(const Plan& plan, const SimulationGround& ground, Score& score) {
  return run_and_count(plan, ground, false, score).result.iteration;
}

Recorded record_and_count(const Plan& plan, const SimulationGround& ground, Score& score) {
  return run_and_count(plan, ground, true, score);
}

}  // namespace dapple
