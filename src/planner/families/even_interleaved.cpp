#include "planner/families/even_interleaved.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/plan/runtime.h"
#include "dapple/planner/baselines/baselines.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/schedule/schedule.h"
#include "dapple/simulate/device_memory.h"
#include "planner/baselines/baseline_search.h"
#include "planner/families/reorder.h"
#include "planner/families/searched_order.h"
#include "planner/request/gradient_synchronizations.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

constexpr ScheduleFamily kFamily = ScheduleFamily::Interleaved;
constexpr std::int64_t kChunks[] = {2, 3, 4, 5, 6, 8, 10, 12, 16};
/// The tasks of all orders that are simulated.
constexpr std::int64_t kTasks = 250'000;

/// An even plan with one stage on each group of devices, and how many each is to have.
struct Attempt {
  Plan plan;
  std::int64_t chunks = 2;
  std::int64_t tasks = 0;
  /// A lower bound: the mean work of all groups of devices.
  Duration bound;
};

class EvenSearch {
 public:
  EvenSearch(const PlanningContext& context, Duration to_beat)
      : context_(context),
        costs_(context.profile, context.topology),
        is_stopped_(context.progress),
        most_(to_beat) {}

  SimulatedPlan run();

 private:
  Duration mean_work(const Plan& plan) const;
  void add(const search::Candidate& candidate);
  void attempt(const Attempt& tried);

  const PlanningContext context_;
  const CostModel costs_;
  StopQuestion is_stopped_;
  Duration most_;
  std::vector<Attempt> attempts_;
  SimulatedPlan best_;
};

/// Returns the work of all layers over the number of groups, each layer on the fastest group's
/// devices: the busiest group has no less.
Duration EvenSearch::mean_work(const Plan& plan) const {
  const LayerRange all{0, costs_.layer_count()};
  Duration least = Duration::infinite();
  for (const StagePlan& stage : plan.stages) {
    const auto replicas = static_cast<std::int64_t>(stage.devices.size());
    const LayerTable& table = costs_.table(replica_share(plan.micro_batch_size, replicas, 0).size(),
                                           context_.topology.device(stage.devices.front()).kind);
    const Duration again = stage.recompute ? table.least_forward(all) : Duration{};
    least = std::min(least, table.least_forward(all) + table.least_backward(all) + again);
  }
  return {divide_down(Wide{least.ns} * plan.num_micro_batches,
                      static_cast<std::int64_t>(plan.stages.size()))};
}

/// Adds a candidate with every number of stages per device, with and without recomputation.
void EvenSearch::add(const search::Candidate& candidate) {
  const PlannerOptions& options = context_.options;
  const auto groups = static_cast<std::int64_t>(candidate.stages.size());
  for (const bool recompute : {false, true}) {
    Plan plan{.global_batch_size = options.global_batch_size,
              .micro_batch_size = candidate.micro_batch_size,
              .num_micro_batches = options.global_batch_size / candidate.micro_batch_size,
              .gradients = usual_gradients(options),
              .family = kFamily,
              .warmup_depths = {},
              .stages = candidate.stages};
    for (StagePlan& stage : plan.stages) stage.recompute = recompute;
    make_room(costs_, options);
    const Duration bound = mean_work(plan);
    if (bound >= most_) continue;
    for (const std::int64_t chunks : kChunks) {
      if (groups * chunks > costs_.layer_count()) break;
      const std::int64_t tasks = count_tasks(kFamily, groups * chunks, plan.num_micro_batches);
      if (tasks > kTasks) break;
      attempts_.push_back({plan, chunks, tasks, bound});
    }
  }
}

void EvenSearch::attempt(const Attempt& tried) {
  const PlannerOptions& options = context_.options;
  make_room(costs_, options);
  auto made = reorder(tried.plan, costs_,
                      {.family = kFamily,
                       .chunks_per_device = tried.chunks,
                       .contention = options.contention,
                       .replicas = options.replicas});
  auto* const reordered = std::get_if<Reordered>(&made);
  if (reordered == nullptr) return;
  Plan plan = std::move(reordered->plan);
  if (!mode_faults(plan, options.mode()).empty()) return;
  const PlanCost cost = costs_.plan_cost(plan);
  const bool fits = options.ignore_memory ||
                    simulate::memory_shortages(generate(plan, options.replicas), cost).empty();
  if (!fits) return;
  Score work;
  const Duration iteration =
      simulate_and_count({plan, cost, context_.topology, options.mode()}, work);
  if (iteration >= most_) return;
  most_ = iteration;
  best_ = {.plan = std::move(plan), .iteration = iteration};
}

SimulatedPlan EvenSearch::run() {
  for (const search::Candidate& candidate : even_candidates(context_)) {
    if (is_stopped_()) return {};
    add(candidate);
  }
  std::stable_sort(attempts_.begin(), attempts_.end(),
                   [](const Attempt& a, const Attempt& b) { return a.bound < b.bound; });
  std::int64_t left = kTasks;
  for (const Attempt& tried : attempts_) {
    if (is_stopped_() || tried.bound >= most_) break;
    if (tried.tasks > left) continue;
    left -= tried.tasks;
    attempt(tried);
  }
  return best_;
}

}  // namespace

bool asks_for_interleaving(const PlannerOptions& options) {
  return options.every_family || options.family == kFamily;
}

SimulatedPlan best_even_interleaved(const PlanningContext& context, Duration to_beat) {
  return EvenSearch(context, to_beat).run();
}

}  // namespace dapple::planner
