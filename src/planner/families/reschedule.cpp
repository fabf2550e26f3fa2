#include "dapple/planner/families/reschedule.h"

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/plan/validate.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/schedule_search/tasks/task_order.h"
#include "dapple/search/dapple_search/even_split.h"
#include "dapple/simulate/device_memory.h"
#include "planner/candidates/candidate_evaluator.h"
#include "planner/families/reorder.h"
#include "planner/families/searched_order.h"

namespace dapple::planner {
namespace {

constexpr std::int64_t kActionsForDepths = 24'000'000;

/// The bytes that an order search keeps for each task: the task in the given and in the best order,
/// as actions and as tasks; two words of each of five searches; the order being changed, with its
/// starts and prefixes; the starts of one order; and the task's share of a simulation.
constexpr std::int64_t kBytesOfATask = 4 * sizeof(Action) + 2 * sizeof(schedule_search::Task) +
                                       5 * 2 * 4 + 8 * sizeof(std::int64_t) + sizeof(Duration) +
                                       kBytesOfAPass / 2;

class Rescheduler {
 public:
  Rescheduler(const Plan& plan, const CostModel& costs, const Reschedule& options)
      : filed_(plan),
        profile_(costs.profile()),
        topology_(costs.topology()),
        options_(options),
        costs_(costs) {}

  std::variant<Reordered, NoSchedule> run();

 private:
  bool recut();
  bool has_room();
  void choose_depths();
  void search_depths();
  std::optional<SimulatedPlan> own_depths();
  void take_order();
  void search_order();
  const Plan* known() const;
  void refuse_memory(Refusal reason, const Plan& least);
  bool is_told_to_stop() {
    is_stopped_ = is_stopped_ || (options_.should_stop && options_.should_stop());
    return is_stopped_;
  }
  // Every depth vector that is tried is simulated.
  void count(const Score& score) {
    effort_.tried += score.simulated;
    effort_.simulated += score.simulated;
  }
  void refuse_faults(std::vector<Violation> faults) {
    if (!faults.empty()) refusal_ = PlanFaults{std::move(faults)};
  }

  const Plan& filed_;
  const ModelProfile& profile_;
  const Topology& topology_;
  const Reschedule& options_;
  const CostModel& costs_;
  Plan plan_;
  // Whether the stages are those of the given plan.
  bool is_kept_ = false;
  std::optional<Duration> iteration_;
  std::optional<Duration> lower_bound_;
  std::optional<Refusal> refusal_;
  std::optional<MemoryShortage> shortage_;
  bool is_stopped_ = false;
  OrderEffort effort_;
};

std::variant<Reordered, NoSchedule> Rescheduler::run() {
  plan_ = filed_;
  plan_.family = options_.family;
  plan_.chunks_per_device = options_.chunks_per_device;
  plan_.order.clear();
  if (recut() && has_room()) {
    fill_gradient_buckets(plan_, profile_);
    if (options_.family == ScheduleFamily::Given) {
      take_order();
    } else if (carries_order(options_.family)) {
      search_order();
    } else {
      choose_depths();
    }
  }
  if (refusal_) return NoSchedule{std::move(*refusal_), shortage_};
  return Reordered{.plan = std::move(plan_),
                   .iteration = iteration_,
                   .lower_bound = lower_bound_,
                   .is_stopped = is_stopped_ && (!iteration_ || iteration_ != lower_bound_),
                   .effort = effort_};
}

/// Makes a stage for every chunk of every group of devices, keeping the plan's stages where
/// possible. Returns false if there are not enough layers.
bool Rescheduler::recut() {
  // A given order is an order of the plan's own stages, on whatever devices these are.
  if (options_.family == ScheduleFamily::Given) {
    is_kept_ = true;
    return true;
  }
  const std::vector<std::vector<StageIndex>> groups = stages_by_device_group(filed_);
  const auto group_count = static_cast<std::int64_t>(groups.size());
  const std::int64_t stages = group_count * options_.chunks_per_device;
  const auto group_of = [&](std::int64_t stage) {
    const bool is_way_back = options_.family == ScheduleFamily::ZeroBubbleV && stage >= group_count;
    const std::int64_t group = is_way_back ? stages - 1 - stage : stage % group_count;
    return groups[static_cast<std::size_t>(group)].front().position();
  };
  const auto is_kept = [&](const StagePlan& stage, std::size_t number) {
    return stage.devices == filed_.stages[group_of(static_cast<std::int64_t>(number))].devices;
  };
  bool same_places = stages == static_cast<std::int64_t>(filed_.stages.size());
  for (std::size_t s = 0; same_places && s < filed_.stages.size(); ++s) {
    same_places = is_kept(filed_.stages[s], s);
  }
  is_kept_ = same_places;
  if (is_kept_) return true;
  if (stages > costs_.layer_count()) {
    refusal_ = TooFewLayers{.stages = stages, .layers = costs_.layer_count()};
    return false;
  }
  const auto time_of = [&](std::int32_t stage, LayerRange layers) {
    const StagePlan& home = filed_.stages[group_of(stage)];
    Duration slowest;
    for (std::size_t i = 0; i < home.devices.size(); ++i) {
      const LayerTable& table = costs_.in(home.form).table(samples_of(filed_, home, i).size(),
                                                           topology_.device(home.devices[i]).kind);
      slowest = std::max(slowest, table.least_forward(layers) + table.least_backward(layers));
    }
    return slowest;
  };
  plan_.stages.clear();
  const std::vector<LayerRange> cuts =
      search::balanced_split(costs_.layer_count(), static_cast<std::int32_t>(stages), time_of);
  for (std::int64_t s = 0; s < stages; ++s) {
    StagePlan stage = filed_.stages[group_of(s)];
    stage.layers = cuts[static_cast<std::size_t>(s)];
    stage.gradient_buckets.clear();
    plan_.stages.push_back(std::move(stage));
  }
  return true;
}

/// Whether the schedule can be searched and simulated within the memory limit.
bool Rescheduler::has_room() {
  const auto stages = static_cast<std::int64_t>(plan_.stages.size());
  const std::int64_t passes = lane_passes(plan_.stages, plan_.num_micro_batches, options_.replicas);
  const std::int64_t tasks = count_tasks(options_.family, stages, plan_.num_micro_batches);
  const bool is_searched = searches_order(options_.family);
  const std::int64_t most_tasks = options_.memory_limit.count / kBytesOfATask;
  const std::int64_t most = most_passes(options_.memory_limit);
  if (passes > most) {
    refusal_ = TooLongToSimulate{.micro_batches = plan_.num_micro_batches,
                                 .stages = stages,
                                 .passes = passes,
                                 .most_passes = most,
                                 .memory_limit = options_.memory_limit};
    return false;
  }
  if (!is_searched || tasks <= most_tasks) return true;
  refusal_ = TooLongToSearch{
      .tasks = tasks, .most_tasks = most_tasks, .memory_limit = options_.memory_limit};
  return false;
}

void Rescheduler::choose_depths() {
  set_largest_depths(plan_);
  if (options_.family == ScheduleFamily::OneFOneB && deals_micro_batches(plan_)) {
    // Smaller depths may deadlock, depending on how micro-batches are dealt, so the plan's own
    // depths are kept.
    if (filed_.family == options_.family) plan_.warmup_depths = filed_.warmup_depths;
    return;
  }
  if (options_.family == ScheduleFamily::OneFOneB) return search_depths();
  refuse_faults(validate(plan_, costs_.layer_count(), topology_));
  if (!refusal_) fill_depths(plan_);
}

void Rescheduler::search_depths() {
  const PlannerOptions search{.global_batch_size = plan_.global_batch_size,
                              .micro_batch_size = plan_.micro_batch_size,
                              .bucket_size = plan_.gradients.bucket_size,
                              .optimizer = plan_.gradients.optimizer,
                              .family = options_.family,
                              .contention = options_.contention,
                              .replicas = options_.replicas};
  std::optional<SimulatedPlan> best = own_depths();
  if (!best || !is_told_to_stop()) {
    // Without own depths, a stop must not end the search before some are found.
    std::function<bool()> should_stop;
    if (best) should_stop = [this] { return is_told_to_stop(); };
    const CandidateEvaluator evaluator({profile_, topology_, search}, should_stop);
    Score score = evaluator.refine_depths({.micro_batch_size = plan_.micro_batch_size,
                                           .gradients = plan_.gradients,
                                           .stages = plan_.stages,
                                           .bound = {}},
                                          0, kActionsForDepths);
    count(score);
    const bool is_better =
        score.best.feasible() && (!best || score.best.iteration < best->iteration);
    if (is_better) best = std::move(score.best);
  }
  if (!best) {
    Plan least = plan_;
    least.warmup_depths.assign(least.stages.size(), 1);
    return refuse_memory(NoDepthsFit{}, least);
  }
  plan_.warmup_depths = best->plan.warmup_depths;
}

/// Simulates the plan at the given plan's own depths, which stay unless others are faster. Returns
/// nothing where they are not valid here or do not fit.
std::optional<SimulatedPlan> Rescheduler::own_depths() {
  Plan own = plan_;
  own.warmup_depths = filed_.warmup_depths;
  if (!is_kept_ || !validate(own, costs_.layer_count(), topology_).empty()) return std::nullopt;
  const PlanCost cost = costs_.plan_cost(own);
  if (!simulate::memory_shortages(generate(own), cost).empty()) return std::nullopt;
  Score work;
  const Duration time =
      simulate_and_count({own, cost, topology_, {options_.contention, options_.replicas}}, work);
  count(work);
  return SimulatedPlan{.plan = std::move(own), .iteration = time, .order = 0};
}

void Rescheduler::take_order() {
  plan_.order = options_.order;
  plan_.warmup_depths.assign(plan_.stages.size(), plan_.num_micro_batches);
  refuse_faults(validate(plan_, costs_.layer_count(), topology_));
  if (refusal_) return;
  fill_depths(plan_);
  refuse_faults(validate(generate(plan_), plan_));
}

void Rescheduler::search_order() {
  if (deals_micro_batches(plan_)) {
    refusal_ = DealsMicroBatches{};
    return;
  }
  std::optional<SearchedOrder> found =
      planner::search_order({.plan = plan_,
                             .known = known(),
                             .costs = costs_,
                             .options = options_,
                             .should_stop = [this] { return is_told_to_stop(); }});
  if (!found) return refuse_memory(NoOrderFits{}, one_by_one(plan_));
  plan_.order = std::move(found->order);
  fill_depths(plan_);
  iteration_ = found->iteration;
  lower_bound_ = found->lower_bound;
  effort_ = found->effort;
}

/// Returns the given plan if its stages are kept and it has an order, else null.
const Plan* Rescheduler::known() const {
  if (!is_kept_) return nullptr;
  const bool has_order =
      carries_order(filed_.family) ? !filed_.order.empty() : !filed_.warmup_depths.empty();
  return has_order ? &filed_ : nullptr;
}

/// Refuses the plan for lack of memory. `least` is the plan that needs the least memory of all that
/// the family allows.
void Rescheduler::refuse_memory(Refusal reason, const Plan& least) {
  const auto shortages = simulate::memory_shortages(generate(least), costs_.plan_cost(least));
  check(!shortages.empty(), "nothing was found to fit where the least of plans does");
  shortage_ = shortages.front();
  refusal_ = std::move(reason);
}

}  // namespace

std::variant<Reordered, NoSchedule> reorder(const Plan& plan, const CostModel& costs,
                                            const Reschedule& options) {
  return Rescheduler(plan, costs, options).run();
}

namespace {

/// The factor between the numbers of orders of successive searches.
constexpr std::int64_t kStep = 4;

/// Returns the numbers of orders of the searches to run, largest first: the usual number multiplied
/// or divided by powers of kStep, as far as it is no more than `most`. A larger `most` thus only
/// adds searches.
std::vector<std::int64_t> sizes_of_searches(std::int64_t usual, std::int64_t most) {
  std::int64_t size = usual;
  while (size <= most / kStep) size *= kStep;
  std::vector<std::int64_t> sizes;
  for (; size >= 1; size /= kStep) {
    if (size <= most) sizes.push_back(size);
  }
  return sizes;
}

bool is_proven(const Reordered& found) {
  return found.iteration && found.lower_bound && *found.iteration <= *found.lower_bound;
}

/// Returns the best result of searches of several sizes, as a search may end with a worse order
/// than one that tried fewer orders. The largest search runs first, as it is the most likely to
/// prove its order optimal, which ends the others.
std::variant<Reordered, NoSchedule> best_reordered(const Plan& plan, const CostModel& costs,
                                                   const Reschedule& options) {
  const auto groups = static_cast<std::int64_t>(stages_by_device_group(plan).size());
  const std::int64_t usual = usual_orders(options.family, groups * options.chunks_per_device,
                                          groups, plan.num_micro_batches);
  std::optional<Reordered> best;
  for (const std::int64_t size : sizes_of_searches(usual, options.evaluations.value_or(usual))) {
    if (best && is_proven(*best)) break;
    if (best && options.should_stop && options.should_stop()) {
      best->is_stopped = true;
      break;
    }
    Reschedule search = options;
    search.evaluations = size;
    auto made = reorder(plan, costs, search);
    if (std::holds_alternative<NoSchedule>(made)) return made;
    Reordered& found = std::get<Reordered>(made);
    if (!best) {
      best = std::move(found);
      continue;
    }
    const auto bound = std::max(best->lower_bound, found.lower_bound);
    const OrderEffort effort = best->effort + found.effort;
    const bool is_stopped = best->is_stopped || found.is_stopped;
    if (*found.iteration < *best->iteration) best = std::move(found);
    best->lower_bound = bound;
    best->is_stopped = is_stopped && !is_proven(*best);
    best->effort = effort;
  }
  check(best.has_value(), "some number of orders is no more than what may be tried");
  return std::move(*best);
}

}  // namespace

std::variant<Rescheduled, NoSchedule> reschedule(const Plan& plan, const ModelProfile& profile,
                                                 const Topology& topology,
                                                 const Reschedule& options) {
  const CostModel costs(profile, topology);
  const bool is_searched = searches_order(options.family);
  auto reordered =
      is_searched ? best_reordered(plan, costs, options) : reorder(plan, costs, options);
  if (auto* none = std::get_if<NoSchedule>(&reordered)) return std::move(*none);
  Rescheduled result;
  auto& made = std::get<Reordered>(reordered);
  result.plan = std::move(made.plan);
  result.lower_bound = made.lower_bound;
  result.is_stopped = made.is_stopped;
  result.effort = made.effort;
  result.evaluation =
      evaluate(result.plan, profile, topology, {options.contention, options.replicas});
  return result;
}

}  // namespace dapple::planner
