#include "planner/baselines/baseline_search.h"

#include <algorithm>
#include <utility>

#include "dapple/plan/least_depth.h"
#include "dapple/planner/candidates/explain.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/bounds/bound.h"
#include "planner/candidates/candidate_evaluator.h"
#include "planner/candidates/simulation_order.h"
#include "planner/request/gradient_synchronizations.h"

namespace dapple::planner {
namespace {

/// The budgets of one baseline, in simulated actions: for its candidates, and for refining the
/// depths of the best one.
constexpr std::int64_t kActionBudget = 250'000;
constexpr std::int64_t kRefinementBudget = kActionBudget / 5;
/// The work of computing bounds: layers and devices, summed over all candidates.
constexpr std::int64_t kCostingWork = 20'000'000;
/// Once the budget is spent, only candidates that need no more actions than this are simulated.
constexpr std::int64_t kSmallSimulation = kActionBudget / 50;

class BaselineSearch {
 public:
  BaselineSearch(const BaselineFamily& family, const PlanningContext& context,
                 const std::function<bool()>& should_stop)
      : name_(family.name),
        to_beat_(family.to_beat),
        options_(context.options),
        context_(context.with(options_)),
        should_stop_(should_stop),
        costs_(context.profile, context.topology),
        evaluator_(context_, should_stop) {
    options_.family = family.schedule;
    options_.pins = {};
    // Each candidate is costed twice; where that takes too long, only a regular sample is.
    const auto figures =
        static_cast<std::int64_t>(context.profile.layers.size()) + context.topology.device_count();
    const auto most = static_cast<std::size_t>(kCostingWork / figures);
    const std::size_t step = 1 + family.count / std::max<std::size_t>(1, most);
    for (std::size_t i = 0; i < family.count; i += step) {
      if (!is_stopped()) add(family.candidate(i));
    }
  }

  std::optional<BaselinePlan> run();

 private:
  bool is_stopped() const { return should_stop_ && should_stop_(); }
  void add(const search::Candidate& candidate);
  Duration work_of(const search::Candidate& candidate, bool recompute);
  Plan plan_at(const search::Candidate& candidate, std::int64_t depth) const;
  std::int64_t actions_of(const search::Candidate& candidate) const {
    return least_actions(candidate, options_.global_batch_size);
  }
  SimulatedPlan fastest() const;
  BaselinePlan least_memory() const;

  const std::string name_;
  const Duration to_beat_;
  PlannerOptions options_;
  // With the options of the baseline.
  const PlanningContext context_;
  const std::function<bool()>& should_stop_;
  CostModel costs_;
  CandidateEvaluator evaluator_;
  std::vector<search::Candidate> candidates_;
};

Plan BaselineSearch::plan_at(const search::Candidate& candidate, std::int64_t depth) const {
  Plan plan{.global_batch_size = options_.global_batch_size,
            .micro_batch_size = candidate.micro_batch_size,
            .num_micro_batches = options_.global_batch_size / candidate.micro_batch_size,
            .gradients = candidate.gradients,
            .family = *options_.family,
            .warmup_depths = {},
            .stages = candidate.stages};
  if (plan.family == ScheduleFamily::GPipe) depth = plan.num_micro_batches;
  plan.warmup_depths.assign(plan.stages.size(), std::min(depth, plan.num_micro_batches));
  fill_gradient_buckets(plan, context_.profile);
  return plan;
}

/// Returns the longest work of a replica, of the first one of each stage; zero if some stage deals
/// its micro-batches.
Duration BaselineSearch::work_of(const search::Candidate& candidate, bool recompute) {
  if (to_beat_.is_infinite()) return {};
  Duration most;
  for (const StagePlan& stage : candidate.stages) {
    if (stage.replication != Replication::Split) return {};
    const std::int64_t replicas = std::ssize(stage.devices) / stage.devices_per_replica;
    const std::int64_t samples =
        ReplicaShares(candidate.micro_batch_size, replicas, stage.samples).of(0).size();
    make_room(costs_, options_);
    const LayerTable& table =
        costs_.in(stage.form).table(samples, context_.topology.device(stage.devices.front()).kind);
    const Duration forward = table.forward(stage.layers);
    most = std::max(most, (recompute ? 2 : 1) * forward + table.backward(stage.layers));
  }
  return options_.global_batch_size / candidate.micro_batch_size * most;
}

/// Adds both variants of a candidate, with and without recomputation, with their lower bounds over
/// all depths; a candidate that is too long to be simulated is not added.
void BaselineSearch::add(const search::Candidate& candidate) {
  const std::int64_t micro_batches = options_.global_batch_size / candidate.micro_batch_size;
  if (lane_passes(candidate.stages, micro_batches, options_.replicas) >
      most_passes(options_.memory_limit)) {
    return;
  }
  // Where some layers of every stage recompute, whole stages do so in a form before this one.
  const bool is_in_all = context_.profile.parallelism.recomputed_layers.is_all();
  for (const bool recompute : {false, true}) {
    if (recompute && !is_in_all && !to_beat_.is_infinite()) continue;
    if (work_of(candidate, recompute) >= to_beat_) continue;
    search::Candidate& variant = candidates_.emplace_back(candidate);
    variant.gradients = usual_gradients(options_);
    for (StagePlan& stage : variant.stages) stage.recompute = recompute;
    const Plan plan = plan_at(variant, micro_batches);
    make_room(costs_, options_);
    const PlanCost cost = costs_.plan_cost(plan);
    variant.bound = search::lower_bound(
        {plan, cost, context_.topology, {Contention::Off, options_.replicas, options_.transfers}});
    if (variant.bound >= to_beat_) candidates_.pop_back();
  }
}

SimulatedPlan BaselineSearch::fastest() const {
  SimulatedPlan best;
  Duration most = to_beat_;
  std::int64_t actions = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (is_stopped()) break;
    if (candidates_[i].bound >= most) continue;
    const std::int64_t left = kActionBudget - actions;
    if (left <= 0 && best.feasible() && actions_of(candidates_[i]) > kSmallSimulation) continue;
    const Score score = evaluator_.score(candidates_[i], i, most, std::max<std::int64_t>(1, left));
    actions += score.actions;
    if (!score.best.feasible()) continue;
    best = score.best;
    most = best.iteration;
  }
  if (!best.feasible()) return best;
  // One refinement step tries two neighbours for each stage.
  const search::Candidate& chosen = candidates_[best.order];
  const std::int64_t step =
      2 * static_cast<std::int64_t>(chosen.stages.size()) * actions_of(chosen);
  return step <= kRefinementBudget ? evaluator_.refine(best, kRefinementBudget).best : best;
}

BaselinePlan BaselineSearch::least_memory() const {
  Plan closest;
  Bytes least = Bytes::infinite();
  for (const search::Candidate& candidate : candidates_) {
    Plan plan = plan_at(candidate, 1);
    make_room(costs_, options_);
    const std::vector<MemoryShortage> shortages = memory_shortages(costs_.plan_cost(plan));
    check(!shortages.empty(), "no baseline was found to fit, but one does");
    if (shortages.front().missing() >= least) continue;
    least = shortages.front().missing();
    closest = std::move(plan);
  }
  const Duration iteration =
      simulate::simulate(
          generate(closest, options_.replicas), costs_.plan_cost(closest), context_.topology,
          {.contention = options_.contention, .transfers = options_.transfers, .record = false})
          .iteration;
  return as_baseline(name_, std::move(closest), iteration, context_);
}

std::optional<BaselinePlan> BaselineSearch::run() {
  if (candidates_.empty()) return std::nullopt;
  std::vector<search::Candidate> promising;
  for (const std::size_t position : simulation_order(candidates_)) {
    promising.push_back(std::move(candidates_[position]));
  }
  candidates_ = std::move(promising);
  SimulatedPlan best = fastest();
  if (!best.feasible()) {
    if (is_stopped() || to_beat_ < Duration::infinite()) return std::nullopt;
    return least_memory();
  }
  return as_baseline(name_, std::move(best.plan), best.iteration, context_);
}

/// Whether memory keeps some stage from having as many micro-batches in flight as there are stages
/// from it to the last, the least that can keep it busy.
bool is_depth_limited(const Plan& plan, const PlanCost& costs) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::int64_t least =
        least_depth(index_at<StageIndex>(s), plan.stages.size(), plan.num_micro_batches);
    if (plan.warmup_depths[s] >= least) continue;
    for (const ReplicaCost& replica : costs.stages[s].replicas) {
      if (replica.memory.peak() + replica.memory.per_micro_batch > replica.memory_limit)
        return true;
    }
  }
  return false;
}

}  // namespace

void make_room(const CostModel& costs, const PlannerOptions& options) {
  constexpr std::int64_t kPartOfTables = 16;
  if (costs.kept_by_tables() > Bytes{options.memory_limit.count / kPartOfTables}) {
    costs.forget_tables();
  }
}

BaselinePlan as_baseline(std::string name, Plan plan, Duration iteration,
                         const PlanningContext& context) {
  const PlanCost costs = CostModel(context.profile, context.topology).plan_cost(plan);
  const Schedule schedule = generate(plan, context.options.replicas);
  const auto time_without = [&](simulate::SimulationOptions options) {
    options.contention = context.options.contention;
    options.transfers = context.options.transfers;
    options.record = false;
    return simulate::simulate(schedule, costs, context.topology, options).iteration;
  };
  const Duration without_transfers = time_without({.free_transfers = true});
  const Duration alone = has_reductions(costs)
                             ? time_without({.free_transfers = true, .free_all_reduce = true})
                             : without_transfers;
  BaselinePlan baseline;
  Baseline& figures = baseline.figures;
  figures.name = std::move(name);
  figures.shape = shape_of(plan);
  figures.iteration = iteration;
  figures.parts = time_parts({.costs = costs,
                              .schedule = schedule,
                              .iteration = iteration,
                              .without_transfers = without_transfers,
                              .alone = alone},
                             context.topology);
  const std::vector<MemoryShortage> shortages = memory_shortages(costs);
  figures.feasible = context.options.ignore_memory || shortages.empty();
  if (!figures.feasible) figures.missing = shortages.front().missing();
  figures.depth_limited = !context.options.ignore_memory && is_depth_limited(plan, costs);
  baseline.plan = std::move(plan);
  return baseline;
}

std::optional<BaselinePlan> best_of(const BaselineFamily& family, const PlanningContext& context,
                                    const std::function<bool()>& should_stop) {
  return BaselineSearch(family, context, should_stop).run();
}

}  // namespace dapple::planner
