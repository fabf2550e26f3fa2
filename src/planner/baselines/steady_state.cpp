#include "dapple/planner/baselines/steady_state.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/cost/cost_model.h"
#include "dapple/schedule/schedule.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/simulate/simulate.h"

namespace dapple::planner {
namespace {

/// The micro-batches simulated at first and at most, and the largest product of micro-batches and
/// stages.
constexpr std::int64_t kFewMicroBatches = 64;
constexpr std::int64_t kMostMicroBatches = 65'536;
constexpr std::int64_t kMostPasses = 2'000'000;

/// Returns the plan with so many micro-batches and without gradient buckets, as gradients are
/// reduced as a part of each backward.
Plan without_flushes(const Plan& plan, std::int64_t micro_batches) {
  Plan endless = plan;
  endless.num_micro_batches = micro_batches;
  endless.global_batch_size = micro_batches * plan.micro_batch_size;
  endless.gradients.optimizer = OptimizerTiming::AtEnd;
  for (StagePlan& stage : endless.stages) stage.gradient_buckets.clear();
  endless.tied_gradients.clear();
  return endless;
}

/// The number of micro-batches after which the turns of all dealt replicas repeat.
std::int64_t turns_of(const Plan& plan) {
  std::int64_t turns = 1;
  for (const StagePlan& stage : plan.stages) {
    if (stage.replication != Replication::Deal) continue;
    turns = std::lcm(turns, static_cast<std::int64_t>(stage.devices.size()));
  }
  return turns;
}

/// Returns the costs of the plan with the reduction and the optimizer step included in each
/// backward, for enough micro-batches to cover every transfer between dealt replicas.
PlanCost costs_with_updates(const Plan& plan, const CostModel& model) {
  Plan all_turns = plan;
  all_turns.num_micro_batches *= turns_of(plan);
  all_turns.global_batch_size *= turns_of(plan);
  PlanCost costs = model.plan_cost(all_turns);
  for (StageCost& stage : costs.stages) {
    const Duration update = search::time_after_last_backward(stage);
    stage.backward += update;
    for (ReplicaCost& replica : stage.replicas) replica.backward += update;
    stage.tied_reduction_from_here = {};
    stage.buckets.clear();
    stage.bucket_ready.clear();
    stage.bucket_ready_in_weights.clear();
    stage.optimizer_step = {};
    stage.bucket_steps.clear();
  }
  return costs;
}

/// Returns for each micro-batch when each stage starts its forward and its backward, stage by
/// stage.
std::vector<std::vector<Duration>> starts_of(const Timeline& timeline, std::size_t stages,
                                             std::int64_t micro_batches) {
  std::vector<std::vector<Duration>> starts(static_cast<std::size_t>(micro_batches),
                                            std::vector<Duration>(2 * stages));
  for (const TimedAction& timed : timeline.actions) {
    const bool is_forward = timed.action.kind == ActionKind::Forward;
    if (!is_forward && timed.action.kind != ActionKind::Backward) continue;
    starts[static_cast<std::size_t>(timed.action.index)]
          [2 * timed.action.stage.position() + (is_forward ? 0 : 1)] = timed.start;
  }
  return starts;
}

class SteadyStateSearch {
 public:
  SteadyStateSearch(const Plan& plan, const ModelProfile& profile, const Topology& topology,
                    Contention contention)
      : plan_(plan),
        topology_(topology),
        contention_(contention),
        costs_(costs_with_updates(plan, CostModel(profile, topology))),
        turns_(turns_of(plan)) {}

  std::optional<std::pair<Duration, std::int64_t>> run() const;

 private:
  std::int64_t memory() const;
  std::vector<std::vector<Duration>> simulate_first(std::int64_t micro_batches) const;
  std::optional<Duration> period_of(const std::vector<std::vector<Duration>>& starts,
                                    std::int64_t cycle) const;

  const Plan& plan_;
  const Topology& topology_;
  Contention contention_;
  PlanCost costs_;
  std::int64_t turns_;
};

/// The number of preceding micro-batches on which any start depends.
std::int64_t SteadyStateSearch::memory() const {
  const std::int64_t deepest =
      *std::max_element(plan_.warmup_depths.begin(), plan_.warmup_depths.end());
  return (deepest + 1) * turns_ + 1;
}

std::vector<std::vector<Duration>> SteadyStateSearch::simulate_first(
    std::int64_t micro_batches) const {
  const Plan endless = without_flushes(plan_, micro_batches);
  const Schedule schedule = generate(endless);
  check(validate(schedule, endless).empty(), "an order without flushes is none");
  const simulate::SimulationResult result =
      simulate::simulate(schedule, costs_, topology_, {.contention = contention_, .record = true});
  return starts_of(result.timeline, plan_.stages.size(), micro_batches);
}

/// Returns the time by which each of the last micro-batches, apart from those that the end of the
/// pipeline affects, is later than the one `cycle` before it; nothing if it is not the same for
/// all.
std::optional<Duration> SteadyStateSearch::period_of(
    const std::vector<std::vector<Duration>>& starts, std::int64_t cycle) const {
  // The end of the pipeline is not steady, as stages run out of forwards.
  const auto last = static_cast<std::int64_t>(starts.size()) - memory();
  const std::int64_t first = last - memory();
  if (first - cycle < 0) return std::nullopt;
  const auto at = [&](std::int64_t m) -> const std::vector<Duration>& {
    return starts[static_cast<std::size_t>(m)];
  };
  const Duration period = at(first).front() - at(first - cycle).front();
  for (std::int64_t m = first; m < last; ++m) {
    for (std::size_t i = 0; i < at(m).size(); ++i) {
      if (at(m)[i] - at(m - cycle)[i] != period) return std::nullopt;
    }
  }
  return period;
}

std::optional<std::pair<Duration, std::int64_t>> SteadyStateSearch::run() const {
  const auto stages = static_cast<std::int64_t>(plan_.stages.size());
  const std::int64_t most = std::min(kMostMicroBatches, kMostPasses / stages);
  for (std::int64_t n = std::max(kFewMicroBatches, 4 * memory()); n <= most; n *= 2) {
    const std::vector<std::vector<Duration>> starts = simulate_first(n);
    for (std::int64_t cycle = turns_; cycle <= n / 2; cycle += turns_) {
      if (const auto period = period_of(starts, cycle)) return std::pair{*period, cycle};
    }
  }
  return std::nullopt;
}

/// Adds a version of the weights for each micro-batch in flight but one, as the plan's memory
/// already includes one version.
void count_memory(const PlanCost& costs, SteadyState& steady) {
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    std::int64_t versions = 1;
    Bytes most;
    for (const ReplicaCost& replica : costs.stages[s].replicas) {
      const MemoryCost& memory = replica.memory;
      versions = std::max(versions, memory.in_flight);
      const Bytes peak = memory.peak() + (memory.in_flight - 1) * memory.weights;
      most = std::max(most, peak);
      if (peak <= replica.memory_limit) continue;
      steady.shortages.push_back({.device = replica.device,
                                  .stage = index_at<StageIndex>(s),
                                  .needed = peak,
                                  .limit = replica.memory_limit});
    }
    steady.weight_versions.push_back(versions);
    steady.peak_memory.push_back(most);
  }
  std::stable_sort(steady.shortages.begin(), steady.shortages.end(),
                   [](const auto& a, const auto& b) { return a.missing() > b.missing(); });
}

}  // namespace

Duration time_of(const SteadyState& steady, std::int64_t count) {
  return {divide_up(Wide{steady.period.ns} * count, steady.micro_batches)};
}

std::optional<SteadyState> steady_state(const Plan& plan, const ModelProfile& profile,
                                        const Topology& topology, Contention contention) {
  check(plan.family == ScheduleFamily::OneFOneB, "a steady state was asked for of no 1F1B");
  Plan whole = plan;
  fill_gradient_buckets(whole, profile);
  const auto found = SteadyStateSearch(whole, profile, topology, contention).run();
  if (!found) return std::nullopt;
  SteadyState steady;
  steady.period = found->first;
  steady.micro_batches = found->second;
  count_memory(CostModel(profile, topology).plan_cost(whole), steady);
  return steady;
}

}  // namespace dapple::planner
