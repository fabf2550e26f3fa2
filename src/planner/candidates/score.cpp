#include "dapple/planner/candidates/score.h"

#include <cstddef>
#include <tuple>
#include <vector>

#include "dapple/search/bounds/bound.h"
#include "dapple/search/bounds/earliest_start_bound.h"

namespace dapple::planner {

std::int64_t devices_used(const Plan& plan) {
  std::int64_t used = 0;
  for (const StagePlan& stage : plan.stages)
    used += static_cast<std::int64_t>(stage.devices.size());
  return used;
}

bool better(const SimulatedPlan& a, const SimulatedPlan& b) {
  if (a.iteration != b.iteration) return a.iteration < b.iteration;
  if (!a.feasible()) return false;
  return std::tuple(devices_used(a.plan), a.plan.stages.size(), a.order, a.plan.warmup_depths) <
         std::tuple(devices_used(b.plan), b.plan.stages.size(), b.order, b.plan.warmup_depths);
}

namespace {

/// The number of flows on shared links that together take as long to simulate as one action.
constexpr std::size_t kFlowsOfAnAction = 32;

/// The work of simulating transfers and passes with many flows, beyond their own actions, in
/// actions.
std::int64_t actions_of_flows(const search::BoundedPlan& bounded) {
  if (!shares_links(bounded.mode.contention)) return 0;
  const auto flows_of = [](const std::vector<TransferCost>& transfers) {
    return transfers.empty() ? std::size_t{0} : transfers.front().flows.size();
  };
  std::size_t actions = 0;
  const auto add = [&](const BoundaryCost& transfers) {
    actions += flows_of(transfers.forward) / kFlowsOfAnAction;
    actions += flows_of(transfers.backward) / kFlowsOfAnAction;
  };
  for (const BoundaryCost& boundary : bounded.costs.boundaries) add(boundary);
  for (const SkipCost& skip : bounded.costs.skips) add(skip.transfers);
  if (bounded.mode.contention == Contention::SharedWithCollectives) {
    for (const StageCost& stage : bounded.costs.stages) {
      // One in each forward and each backward.
      if (has_traffic(stage)) actions += 2 * stage.replicas.size() / kFlowsOfAnAction;
    }
  }
  return static_cast<std::int64_t>(actions) * bounded.plan.num_micro_batches;
}

std::int64_t simulated_actions(const Schedule& schedule, const search::BoundedPlan& bounded) {
  std::int64_t actions = actions_of_flows(bounded);
  for (const Lane& lane : schedule.lanes) actions += static_cast<std::int64_t>(lane.actions.size());
  return actions;
}

Recorded run_and_count(const search::BoundedPlan& bounded, bool record, Duration enough,
                       const std::function<bool()>& should_stop, Score& score) {
  Recorded recorded{.schedule = generate(bounded.plan, bounded.mode.replicas), .result = {}};
  score.actions += simulated_actions(recorded.schedule, bounded);
  ++score.simulated;
  recorded.result = simulate::simulate(recorded.schedule, bounded.costs, bounded.topology,
                                       {.contention = bounded.mode.contention,
                                        .transfers = bounded.mode.transfers,
                                        .record = record,
                                        .enough = enough,
                                        .should_stop = should_stop});
  return recorded;
}

}  // namespace

Duration simulate_and_count(const search::BoundedPlan& bounded, Score& score,
                            const std::function<bool()>& should_stop, Duration most) {
  const Duration enough = most.is_infinite() ? most : most + Duration{1};
  return run_and_count(bounded, false, enough, should_stop, score).result.iteration;
}

Duration bound_without_contention(search::BoundedPlan bounded,
                                  const std::vector<std::int64_t>& depths, Duration most) {
  if (deals_micro_batches(bounded.plan)) return {};
  bounded.mode.contention = Contention::Off;
  return search::EarliestStartBound(bounded).bound({.least = depths, .most = depths}, nullptr,
                                                   most + Duration{1});
}

void count_unsimulated(const search::BoundedPlan& bounded, Score& score) {
  score.actions += simulated_actions(generate(bounded.plan, bounded.mode.replicas), bounded);
}

Recorded record_and_count(const search::BoundedPlan& bounded, Score& score,
                          const std::function<bool()>& should_stop) {
  return run_and_count(bounded, true, Duration::infinite(), should_stop, score);
}

}  // namespace dapple::planner
