#include "planner/families/searched_order.h"

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/plan/validate.h"
#include "dapple/schedule_search/order_search.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/simulate/device_memory.h"
#include "dapple/simulate/simulate.h"
#include "planner/families/task_problem.h"

namespace dapple::planner {
namespace {

using ActionLists = std::vector<std::vector<Action>>;

/// The default and the least number of orders tried, and the work that they may take together, in
/// tasks times devices, which is what building a list schedule takes.
constexpr std::int64_t kUsualOrders = 20'000;
constexpr std::int64_t kFewestOrders = 4;
constexpr std::int64_t kWorkOfOrders = 2'000'000'000;

/// Returns the computations of a plan, device by device, without optimizer steps and communication.
ActionLists computations_of(const Plan& plan) {
  ActionLists lists;
  for (const Lane& lane : generate(plan).lanes) {
    std::vector<Action>& list = lists.emplace_back();
    for (const Action& action : lane.actions) {
      const bool computes =
          stream_of(action.kind) == Stream::Compute && action.kind != ActionKind::OptimizerStep;
      if (computes) list.push_back(action);
    }
  }
  return lists;
}

/// Returns the plan without an order and at depths of one. Times do not depend on depths, so its
/// costs serve every order.
Plan without_order(Plan plan) {
  plan.order.clear();
  plan.warmup_depths.assign(plan.stages.size(), 1);
  return plan;
}

class OrderFinder {
 public:
  explicit OrderFinder(const OrderQuestion& question)
      : question_(question),
        plan_(without_order(question.plan)),
        costs_(question.costs.plan_cost(plan_)) {}

  std::optional<SearchedOrder> run();

 private:
  Duration simulate_order(const ActionLists& order);
  void take(ActionLists order, Duration iteration);
  void try_known(const schedule_search::TaskProblem& problem);
  bool fits();
  Duration bound_of(const schedule_search::FoundOrder& found,
                    const schedule_search::TaskProblem& problem) const;

  const OrderQuestion& question_;
  Plan plan_;
  PlanCost costs_;
  std::vector<schedule_search::TaskOrder> known_;
  std::optional<SearchedOrder> best_;
  std::int64_t simulated_ = 0;
};

Duration OrderFinder::simulate_order(const ActionLists& order) {
  ++simulated_;
  plan_.order = order;
  return simulate::simulate(generate(plan_, question_.options.replicas), costs_,
                            question_.costs.topology(),
                            {.contention = question_.options.contention, .record = false})
      .iteration;
}

void OrderFinder::take(ActionLists order, Duration iteration) {
  if (best_ && best_->iteration <= iteration) return;
  best_ = {.order = std::move(order), .iteration = iteration, .lower_bound = {}, .effort = {}};
}

/// Tries the known plan's order, if it is an order of the family.
void OrderFinder::try_known(const schedule_search::TaskProblem& problem) {
  if (question_.known == nullptr) return;
  ActionLists lists = computations_of(*question_.known);
  schedule_search::TaskOrder tasks = tasks_of(lists, problem.split_backward);
  if (!schedule_search::check_order(problem, tasks,
                                    schedule_search::run_order(problem, tasks).starts)
           .empty())
    return;
  known_.push_back(std::move(tasks));
  // Try it as it is, too: where its backwards are whole, reductions overlap with more of the last
  // one.
  plan_.order = lists;
  if (!validate(plan_, question_.costs.layer_count(), question_.costs.topology()).empty()) return;
  if (fits()) take(lists, simulate_order(lists));
}

/// Whether the plan with its order is valid and fits into memory.
bool OrderFinder::fits() {
  fill_depths(plan_);
  const Schedule schedule = generate(plan_);
  return validate(schedule, plan_).empty() &&
         simulate::memory_shortages(schedule, question_.costs.plan_cost(plan_)).empty();
}

Duration OrderFinder::bound_of(const schedule_search::FoundOrder& found,
                               const schedule_search::TaskProblem& problem) const {
  const SimulationMode mode{question_.options.contention, question_.options.replicas};
  const bool independent =
      search::follows_least_path({plan_, costs_, question_.costs.topology(), mode});
  // With unsplit backwards the search has bounded all that is possible.
  if (!independent && !problem.split_backward) return found.lower_bound;
  return schedule_search::lower_bound(for_bound(problem, costs_, independent));
}

std::optional<SearchedOrder> OrderFinder::run() {
  const schedule_search::TaskProblem problem = task_problem(plan_, costs_, question_.costs);
  try_known(problem);
  const bool is_split = problem.split_backward;
  const std::optional<schedule_search::FoundOrder> found = schedule_search::search_order(
      problem,
      {.evaluations = question_.options.evaluations.value_or(usual_orders(
           plan_.family, static_cast<std::int64_t>(plan_.stages.size()),
           static_cast<std::int64_t>(problem.memory_limits.size()), plan_.num_micro_batches)),
       .should_stop = question_.should_stop,
       .known = known_,
       .simulate = [&](const schedule_search::TaskOrder& order) {
         return simulate_order(actions_of(order, is_split));
       }});
  if (!found) return std::nullopt;
  take(actions_of(found->order, is_split), *found->simulated);
  best_->lower_bound = bound_of(*found, problem);
  best_->effort = {.tried = found->work.orders(), .simulated = simulated_};
  plan_.order = best_->order;
  check(fits(), "a searched order is sound and fits memory");
  return std::move(best_);
}

}  // namespace

std::optional<SearchedOrder> search_order(const OrderQuestion& question) {
  return OrderFinder(question).run();
}

std::optional<Duration> bound_of_orders(const Plan& plan, const CostModel& costs,
                                        SimulationMode mode) {
  const Plan unordered = without_order(plan);
  const PlanCost cost = costs.plan_cost(unordered);
  const schedule_search::TaskProblem problem = task_problem(unordered, cost, costs);
  if (!validate(problem).empty() || !schedule_search::has_order(problem)) return std::nullopt;
  const bool independent = search::follows_least_path({unordered, cost, costs.topology(), mode});
  return schedule_search::lower_bound(
      independent || problem.split_backward ? for_bound(problem, cost, independent) : problem);
}

std::int64_t count_tasks(ScheduleFamily family, std::int64_t stages,
                         std::int64_t num_micro_batches) {
  return (may_split_backward(family) ? 3 : 2) * stages * num_micro_batches;
}

std::int64_t usual_orders(ScheduleFamily family, std::int64_t stages, std::int64_t devices,
                          std::int64_t num_micro_batches) {
  const std::int64_t tasks = count_tasks(family, stages, num_micro_batches);
  return std::clamp(kWorkOfOrders / (tasks * devices), kFewestOrders, kUsualOrders);
}

Plan one_by_one(Plan plan) {
  const std::vector<std::vector<StageIndex>> groups = stages_by_device_group(plan);
  const bool is_split = may_split_backward(plan.family);
  plan.warmup_depths.assign(plan.stages.size(), 1);
  plan.order.assign(groups.size(), {});
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::int32_t m = 0; m < plan.num_micro_batches; ++m) {
      for (const StageIndex stage : groups[g]) {
        plan.order[g].push_back({ActionKind::Forward, m, stage});
      }
      for (std::size_t i = groups[g].size(); i-- > 0;) {
        const ActionKind kind = is_split ? ActionKind::InputGradient : ActionKind::Backward;
        plan.order[g].push_back({kind, m, groups[g][i]});
        if (is_split) plan.order[g].push_back({ActionKind::WeightGradient, m, groups[g][i]});
      }
    }
  }
  return plan;
}

}  // namespace dapple::planner
