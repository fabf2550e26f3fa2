#include "scoring.h"

#include <algorithm>
#include <tuple>

#include "dapple/search/bound.h"

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

Plan Scorer::plan_of(const Candidate& candidate) const {
  Plan plan{.global_batch_size = options_.global_batch_size,
            .micro_batch_size = candidate.micro_batch_size,
            .num_micro_batches = options_.global_batch_size / candidate.micro_batch_size,
            .family = options_.family.value_or(ScheduleFamily::OneFOneB),
            .warmup_depths = {},
            .stages = candidate.stages};
  fill_gradient_buckets(plan, profile_);
  return plan;
}

void Scorer::try_depths(const Depths& depths, const CostModel& costs, Scored& current,
                        Score& score) const {
  Scored attempt = current;
  attempt.plan.warmup_depths = depths;
  const PlanCost cost = costs.plan_cost(attempt.plan);
  if (lower_bound(attempt.plan, cost, topology_) >= current.iteration) return;
  const Schedule schedule = generate(attempt.plan);
  attempt.iteration =
      simulate(schedule, cost, topology_, {.contention = options_.contention, .record = false})
          .iteration;
  for (const Lane& lane : schedule.lanes) {
    score.actions += static_cast<std::int64_t>(lane.actions.size());
  }
  ++score.simulated;
  if (better(attempt, current)) current = std::move(attempt);
}

Score Scorer::score(const Candidate& candidate, std::size_t order, Duration to_beat) const {
  const CostModel costs(profile_, topology_);
  Score score;
  const auto passes = static_cast<std::int64_t>(candidate.stages.size()) *
                      (options_.global_batch_size / candidate.micro_batch_size);
  if (passes > kMaxStagePasses) return score;
  Scored best{.plan = plan_of(candidate), .iteration = to_beat, .order = order};
  const DepthLimits limits(best.plan, costs, options_.ignore_memory);
  const std::size_t stages = candidate.stages.size();
  std::vector<Depths> families =
      options_.family == ScheduleFamily::GPipe
          ? std::vector<Depths>{Depths(stages, best.plan.num_micro_batches)}
          : depth_families(stages, best.plan.num_micro_batches);
  std::vector<Depths> tried;
  for (const Depths& wanted : families) {
    const std::optional<Depths> depths = limits.fit(wanted);
    if (!depths || (options_.family == ScheduleFamily::GPipe && *depths != wanted)) continue;
    if (std::find(tried.begin(), tried.end(), *depths) != tried.end()) continue;
    tried.push_back(*depths);
    try_depths(*depths, costs, best, score);
  }
  if (!best.plan.warmup_depths.empty()) score.best = std::move(best);
  return score;
}

Score Scorer::refine(const Scored& start, std::int64_t budget) const {
  const CostModel costs(profile_, topology_);
  Score score;
  score.best = start;
  if (options_.family == ScheduleFamily::GPipe) return score;
  const DepthLimits limits(start.plan, costs, options_.ignore_memory);
  for (bool improved = true; improved && score.actions < budget;) {
    improved = false;
    const Depths from = score.best.plan.warmup_depths;
    for (const Depths& wanted : neighbours(from, start.plan.num_micro_batches)) {
      const std::optional<Depths> depths = limits.fit(wanted);
      if (!depths || *depths == from) continue;
      const Duration before = score.best.iteration;
      try_depths(*depths, costs, score.best, score);
      improved = improved || score.best.iteration < before;
    }
  }
  return score;
}

}  // namespace dapple
