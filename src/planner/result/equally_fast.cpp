#include "planner/result/equally_fast.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "dapple/cost/cost_model.h"
#include "dapple/profile/variants.h"
#include "dapple/search/bounds/bound.h"
#include "planner/candidates/as_pinned.h"
#include "planner/candidates/candidate_evaluator.h"
#include "planner/request/micro_batches.h"

namespace dapple::planner {
namespace {

/// The actions that all simulations may take.
constexpr std::int64_t kActionsOfEqual = 2'000'000;
/// Less memory is noticeable if it is less by one of so many parts.
constexpr std::int64_t kNoticeablePart = 20;

/// How far the times of a plan lie below measurements: the smallest measured batch of some layer
/// over the samples that a replica has of a micro-batch, at least one.
struct Extrapolation {
  std::int64_t measured = 1;
  std::int64_t samples = 1;

  friend bool operator<(const Extrapolation& a, const Extrapolation& b) {
    return Wide{a.measured} * b.samples < Wide{b.measured} * a.samples;
  }
};

/// Returns the samples of a micro-batch of the replica that has the fewest. O(replicas).
std::int64_t fewest_samples(const Plan& plan, const StagePlan& stage) {
  if (!stage.samples.empty()) return *std::min_element(stage.samples.begin(), stage.samples.end());
  // Equal shares give the samples that are left over to the first replicas.
  return samples_of(plan, stage, stage.devices.size() - 1).size();
}

/// Returns the largest extrapolation of any layer, on whichever kind of device it was measured.
Extrapolation extrapolation_of(const Plan& plan, const ModelProfile& profile) {
  Extrapolation furthest;
  for (const StagePlan& stage : plan.stages) {
    const ModelProfile& in = in_form(profile, stage.form);
    const std::int64_t samples = in.group.samples_of_replica(fewest_samples(plan, stage));
    for (std::int32_t layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
      const Layer& measured = in.layers[static_cast<std::size_t>(layer)];
      for (std::size_t kind = 0; kind <= in.other_devices.size(); ++kind) {
        furthest =
            std::max(furthest, {measurements_on(measured, kind).front().batch_size, samples});
      }
    }
  }
  return furthest;
}

/// The memory of the fullest device, and its stage.
struct Peak {
  std::size_t stage = 0;
  Bytes memory;
};

Peak peak_of(const PlanCost& cost) {
  Peak peak;
  for (std::size_t s = 0; s < cost.stages.size(); ++s) {
    for (const ReplicaCost& replica : cost.stages[s].replicas) {
      if (replica.memory.peak() > peak.memory) peak = {.stage = s, .memory = replica.memory.peak()};
    }
  }
  return peak;
}

/// Searches for plans that are as fast as a given one.
class EquallyFastSearch {
 public:
  EquallyFastSearch(const PlanningContext& context, const std::function<bool()>& should_stop)
      : context_(context), costs_(context.profile, context.topology), should_stop_(should_stop) {}

  EquallyFast choose(const std::vector<SimulatedPlan>& known);

 private:
  struct Contender {
    SimulatedPlan simulated;
    Extrapolation extrapolation;
    Bytes memory;
  };

  bool has_actions_for(const Plan& plan) const {
    return actions_ + least_actions(plan.stages.size(), plan.num_micro_batches) <= kActionsOfEqual;
  }
  void count(const Score& score);
  Contender contender(const SimulatedPlan& simulated) const;
  std::vector<StagePlan> divided(StagePlan stage, std::int64_t size) const;
  void add_other_micro_batches(const SimulatedPlan& best, std::vector<Contender>& contenders);
  std::optional<SimulatedPlan> with_lower_depth(const SimulatedPlan& from, std::size_t stage);
  void lower_depths(SimulatedPlan& simulated);

  const PlanningContext& context_;
  CostModel costs_;
  const std::function<bool()>& should_stop_;
  std::int64_t actions_ = 0;
  std::int64_t simulated_ = 0;
};

void EquallyFastSearch::count(const Score& score) {
  actions_ += score.actions;
  simulated_ += score.simulated;
}

EquallyFastSearch::Contender EquallyFastSearch::contender(const SimulatedPlan& simulated) const {
  return {.simulated = simulated,
          .extrapolation = extrapolation_of(simulated.plan, context_.profile),
          .memory = peak_of(costs_.plan_cost(simulated.plan)).memory};
}

/// Returns the stage with each way of dividing micro-batches of this size that is asked for.
std::vector<StagePlan> EquallyFastSearch::divided(StagePlan stage, std::int64_t size) const {
  std::vector<StagePlan> ways;
  const bool is_shared = replicas_of(stage) <= size;
  stage.replication = Replication::Split;
  stage.samples.clear();
  if (is_shared) ways.push_back(stage);
  if (is_shared && has_shares_by_speed(context_.options, context_.topology)) {
    stage.samples = costs_.shares_by_speed(size, stage.devices);
    if (!stage.samples.empty()) ways.push_back(stage);
    stage.samples.clear();
  }
  if (may_deal(context_.options) && replicas_of(stage) > 1) {
    stage.replication = Replication::Deal;
    if (replicas_of(stage) * size <= context_.options.global_batch_size) ways.push_back(stage);
  }
  return ways;
}

/// Adds the plans with the stage of `best` and other micro-batches, or another way of dividing
/// them, that are as fast.
void EquallyFastSearch::add_other_micro_batches(const SimulatedPlan& best,
                                                std::vector<Contender>& contenders) {
  const CandidateEvaluator evaluator(context_, should_stop_);
  const StagePlan& own = best.plan.stages.front();
  for (const std::int64_t size : micro_batch_sizes(context_.options).sizes) {
    Plan plan = best.plan;
    plan.micro_batch_size = size;
    plan.num_micro_batches = plan.global_batch_size / size;
    if (!has_actions_for(plan) || !is_as_pinned(plan, context_.options.pins)) continue;
    for (const StagePlan& stage : divided(own, size)) {
      const bool is_own = size == best.plan.micro_batch_size &&
                          stage.replication == own.replication && stage.samples == own.samples;
      if (is_own) continue;
      const search::Candidate candidate{
          .micro_batch_size = size, .gradients = plan.gradients, .stages = {stage}, .bound = {}};
      const Score score = evaluator.score(candidate, best.order, best.iteration + Duration{1},
                                          kActionsOfEqual - actions_);
      count(score);
      if (score.best.feasible()) contenders.push_back(contender(score.best));
    }
  }
}

/// Returns the plan with a lower depth of this stage, and no higher ones, if it takes no longer.
std::optional<SimulatedPlan> EquallyFastSearch::with_lower_depth(const SimulatedPlan& from,
                                                                 std::size_t stage) {
  Depths wanted = from.plan.warmup_depths;
  if (wanted[stage] == 1 || !has_actions_for(from.plan) || should_stop_()) return std::nullopt;
  --wanted[stage];
  for (std::size_t s = stage + 1; s < wanted.size(); ++s) {
    wanted[s] = std::min(wanted[s], wanted[s - 1]);
  }
  const PlannerOptions& options = context_.options;
  const std::optional<Depths> depths =
      DepthLimits(from.plan, costs_, options.ignore_memory, options.transfers).fit(wanted);
  if (!depths) return std::nullopt;
  SimulatedPlan lowered = from;
  lowered.plan.warmup_depths = *depths;
  const PlanCost cost = costs_.plan_cost(lowered.plan);
  const search::BoundedPlan bounded{lowered.plan, cost, context_.topology, options.mode()};
  if (bound_without_contention(bounded, *depths, from.iteration) > from.iteration) {
    return std::nullopt;
  }
  Score score;
  lowered.iteration = simulate_and_count(bounded, score, should_stop_, from.iteration);
  count(score);
  if (lowered.iteration > from.iteration) return std::nullopt;
  return lowered;
}

/// Lowers the depth of the fullest stage as long as the plan takes no longer.
void EquallyFastSearch::lower_depths(SimulatedPlan& simulated) {
  if (simulated.plan.stages.size() == 1 || deals_micro_batches(simulated.plan)) return;
  if (simulated.plan.family != ScheduleFamily::OneFOneB) return;
  if (!context_.options.has_free_depths()) return;
  while (true) {
    const Peak peak = peak_of(costs_.plan_cost(simulated.plan));
    std::optional<SimulatedPlan> lowered = with_lower_depth(simulated, peak.stage);
    if (!lowered) return;
    simulated = *std::move(lowered);
  }
}

EquallyFast EquallyFastSearch::choose(const std::vector<SimulatedPlan>& known) {
  const SimulatedPlan& best = known.front();
  std::vector<Contender> contenders;
  for (const SimulatedPlan& simulated : known) {
    if (simulated.iteration == best.iteration &&
        devices_used(simulated.plan) == devices_used(best.plan)) {
      contenders.push_back(contender(simulated));
    }
  }
  if (best.plan.stages.size() == 1) add_other_micro_batches(best, contenders);
  const auto is_preferred = [](const Contender& a, const Contender& b) {
    const Duration time = a.simulated.iteration;
    if (time != b.simulated.iteration) return time < b.simulated.iteration;
    if (a.extrapolation < b.extrapolation) return true;
    return !(b.extrapolation < a.extrapolation) && a.memory < b.memory;
  };
  Contender chosen = *std::min_element(contenders.begin(), contenders.end(), is_preferred);
  lower_depths(chosen.simulated);
  chosen.memory = peak_of(costs_.plan_cost(chosen.simulated.plan)).memory;
  EquallyFast result{.chosen = std::move(chosen.simulated), .simulated = simulated_};
  Bytes least{chosen.memory.count - chosen.memory.count / kNoticeablePart};
  for (const Contender& other : contenders) {
    const Plan& plan = other.simulated.plan;
    // A search with other micro-batches may find other stages, so only plans of one are named.
    if (plan.stages.size() > 1 || result.chosen.plan.stages.size() > 1) continue;
    const bool is_other = plan.micro_batch_size != result.chosen.plan.micro_batch_size;
    if (!is_other || other.memory >= least) continue;
    if (other.simulated.iteration > result.chosen.iteration) continue;
    least = other.memory;
    result.frugal = {.micro_batch_size = plan.micro_batch_size, .peak_memory = other.memory};
  }
  return result;
}

}  // namespace

EquallyFast choose_equally_fast(const PlanningContext& context,
                                const std::vector<SimulatedPlan>& known,
                                const std::function<bool()>& should_stop) {
  return EquallyFastSearch(context, should_stop).choose(known);
}

}  // namespace dapple::planner
