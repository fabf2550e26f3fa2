#include "planner/families/plan_one_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "dapple/core/error.h"
#include "planner/baselines/baseline_search.h"
#include "planner/candidates/as_pinned.h"
#include "planner/candidates/proven_bound.h"
#include "planner/families/plan_families.h"
#include "planner/memory/least_memory.h"
#include "planner/one_family/dapple_planner.h"
#include "planner/one_family/exact_planner.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

/// Finds a plan that fits, where the DAPPLE search, which is a heuristic, found none. The plan that
/// needs the least memory decides whether any fits.
std::variant<SimulatedPlan, Infeasible> plan_of_least_memory(
    const ModelProfile& profile, const Topology& topology, const PlannerOptions& options,
    const std::function<bool()>& should_stop) {
  const CostModel costs(profile, topology);
  auto any = find_any_plan(costs, options, should_stop);
  if (auto* infeasible = std::get_if<Infeasible>(&any)) return std::move(*infeasible);
  auto& candidate = std::get<search::Candidate>(any);
  if (options.pins.in_order) put_in_order(candidate.stages);
  const Score score =
      CandidateEvaluator(profile, topology, options).score(candidate, 0, Duration{INT64_MAX});
  if (score.best.feasible()) return score.best;
  check(options.pins.least_depths || options.pins.in_order,
        "the plan of least memory fits, but not at any depths");
  Infeasible infeasible;
  infeasible.pins = to_texts(options.pins, profile);
  infeasible.is_certain = false;
  infeasible.conflict =
      fmt::format("some plan fits, but none was found that does {}",
                  options.pins.least_depths ? "with these depths" : "with the devices in order");
  infeasible.remedy = options.pins.least_depths ? "leaving out --pin depths=least" : "more memory";
  return infeasible;
}

/// Whether all devices are alike in kind and memory limit. Then a plan that does not fit on the
/// devices in order fits on no others.
bool has_alike_devices(const Topology& topology) {
  const DeviceIndex first{0};
  for (std::int32_t d = 1; d < topology.device_count(); ++d) {
    if (topology.device({d}).kind != topology.device(first).kind) return false;
    if (topology.memory_limit({d}) != topology.memory_limit(first)) return false;
  }
  return true;
}

std::vector<BaselinePlan> compare_with(const DapplePlans& dapple, const PlanningProblem& problem,
                                       Progress* progress) {
  // The baselines ignore pins.
  PlannerOptions of_others = problem.options;
  of_others.pins = {};
  std::vector<BaselinePlan> plans =
      make_baselines(problem.profile, problem.topology, of_others, progress);
  if (auto baseline = baseline_of(dapple, problem)) plans.push_back(*std::move(baseline));
  return plans;
}

/// Says that the search was stopped before it was known whether a plan fits.
Infeasible stopped_before_a_plan() {
  Infeasible unknown;
  unknown.stopped = true;
  return unknown;
}

/// Adds the baselines that fit and are plans of the requested kind.
void add_baselines(const std::vector<BaselinePlan>& baselines, const PlannerOptions& options,
                   std::vector<SimulatedPlan>& known) {
  for (const BaselinePlan& baseline : baselines) {
    if (!baseline.figures.feasible || !is_asked_for(baseline.plan, options)) continue;
    known.push_back({.plan = baseline.plan, .iteration = baseline.figures.iteration});
  }
}

}  // namespace

std::vector<BaselinePlan> plans_of_others(const ModelProfile& profile, const Topology& topology,
                                          const PlannerOptions& options, Progress* progress) {
  const PlannerOptions start = options_to_start(options);
  const DapplePlans dapple = plan_by_dapple(profile, topology, start, progress);
  return compare_with(dapple, {profile, topology, start}, progress);
}

bool is_asked_for(const Plan& plan, const PlannerOptions& options) {
  if (options.micro_batch_size && plan.micro_batch_size != *options.micro_batch_size) return false;
  if (options.family && plan.family != *options.family) return false;
  return is_as_pinned(plan, options.pins) &&
         std::all_of(plan.stages.begin(), plan.stages.end(), [](const StagePlan& stage) {
           return stage.replication == Replication::Split;
         });
}

std::variant<MadePlan, Infeasible> plan_one_family(const ModelProfile& profile,
                                                   const Topology& topology,
                                                   const PlannerOptions& options,
                                                   Progress* progress,
                                                   std::vector<SimulatedPlan> known) {
  MadePlan made;
  bool are_baselines_whole = true;
  DapplePlans dapple = plan_by_dapple(profile, topology, options, progress);
  const StopQuestion is_stopped(progress);
  if (options.baselines && !is_stopped()) {
    made.baselines = compare_with(dapple, {profile, topology, options}, progress);
    are_baselines_whole = !is_stopped();
    add_baselines(made.baselines, options, known);
  }
  std::move(dapple.best.begin(), dapple.best.end(), std::back_inserter(known));
  std::optional<Infeasible> infeasible;
  if (known.empty()) {
    // The plan of least memory may take long to find, so a stop ends here.
    if (is_stopped()) return stopped_before_a_plan();
    auto least = plan_of_least_memory(profile, topology, options, [&] { return is_stopped(); });
    if (auto* simulated = std::get_if<SimulatedPlan>(&least)) {
      if (is_asked_for(simulated->plan, options)) known.push_back(std::move(*simulated));
    } else {
      infeasible = std::get<Infeasible>(std::move(least));
    }
  }
  std::stable_sort(known.begin(), known.end(), better);

  PlanDocument& document = made.document;
  document.search = std::move(dapple.record);
  std::optional<Duration> bound;
  const bool is_settled = infeasible && infeasible->is_certain && has_alike_devices(topology);
  if (options.planner == PlannerKind::Exact && !is_settled) {
    ExactPlans exact = plan_exactly(profile, topology, options, std::move(known), progress);
    known = std::move(exact.best);
    document.search = std::move(exact.record);
    bound = exact.lower_bound;
  }
  if (known.empty()) {
    if (is_stopped()) return stopped_before_a_plan();
    check(infeasible.has_value(), "nothing was found where something fits");
    return std::move(*infeasible);
  }
  document.profile = profile;
  document.topology = topology.description();
  document.plan = known.front().plan;
  made.evaluation = evaluate(document.plan, profile, topology, options.mode());
  check(options.ignore_memory || made.evaluation.shortages.empty(),
        "the chosen plan does not fit memory");
  document.prediction = made.evaluation.prediction;
  set_proven_bound(document.prediction, bound);
  document.warnings = warnings_about(document, topology);
  if (options.baselines && bound && made.baselines.empty()) are_baselines_whole = false;
  const Duration iteration = document.prediction.iteration;
  const bool has_gap = bound && *bound < iteration;
  if (has_gap && !are_baselines_whole && *bound >= gap_threshold(iteration, options.target_gap)) {
    made.lacks_baselines = true;
    if (!made.baselines.empty()) made.baselines.pop_back();
  }
  for (const BaselinePlan& baseline : made.baselines) {
    document.baselines.push_back(baseline.figures);
  }
  return made;
}

}  // namespace dapple::planner
