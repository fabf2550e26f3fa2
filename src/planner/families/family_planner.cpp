#include "planner/families/family_planner.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "dapple/core/parallel.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/validate.h"
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/search_limits.h"
#include "dapple/search/families/family_bound.h"
#include "dapple/simulate/device_memory.h"
#include "planner/candidates/as_pinned.h"
#include "planner/candidates/candidate_evaluator.h"
#include "planner/families/reorder.h"
#include "planner/families/searched_order.h"
#include "planner/one_family/exact_planner.h"
#include "planner/request/gradient_synchronizations.h"
#include "planner/request/micro_batches.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

/// The largest number of stages of a shape, the largest number of shapes compared, and the number
/// of plans kept after the comparison.
constexpr std::int32_t kMostStages = 16;
constexpr std::size_t kMostShapes = 64;
constexpr std::size_t kKept = 4;
/// Tasks put in order: for each shape that is compared, for each try to move a layer, for all such
/// tries of one plan, and for each plan in the end.
constexpr std::int64_t kTasksToCompare = 100'000;
constexpr std::int64_t kTasksToMove = 60'000;
constexpr std::int64_t kTasksOfMoves = 6'000'000;
constexpr std::int64_t kTasksToFinish = 20'000'000;
constexpr std::int64_t kLeastOrders = 4;
constexpr std::int64_t kMostOrders = 20'000;
/// Tasks put in order for all shapes that are compared: those with small orders, and those with
/// large ones.
constexpr std::int64_t kTasksOfComparison = 128 * kTasksToCompare;
constexpr std::int64_t kTasksOfLargeComparison = kTasksOfComparison / 4;
/// An order with more tasks than this is large. Only a part of the budget is spent on moves and in
/// the end for such a plan: it has many micro-batches, and the choice among orders seldom makes it
/// faster.
constexpr std::int64_t kLargeOrder = 5'000;
constexpr std::int64_t kPartOfLarge = 8;
/// Stages that the bounds of a family examine, over all micro-batch sizes.
constexpr std::int64_t kStagesOfBounds = 1'000'000'000;
/// The largest number of tasks of a plan, so that no single order takes all the time.
constexpr std::int64_t kMostTasks = 400'000;

/// An upper bound on all iterations.
constexpr Duration kLongest{std::int64_t{1} << 60};

std::vector<std::int64_t> chunk_counts(ScheduleFamily family) {
  if (family == ScheduleFamily::ZeroBubbleV) return {2};
  if (has_loops(family)) return {2, 3, 4, 6, 8};
  return {1};
}

/// A plan whose devices and micro-batches are to be put under the family.
struct Shape {
  Plan plan;
  std::int64_t chunks = 1;
  // The lower bound with one stage per device; 0 for a start.
  Duration bound;
};

/// The work of costing a plan and its devices before any order is tried, in tasks.
std::int64_t tasks_of_costs(const Plan& plan) {
  constexpr std::int64_t kTasksOfADevice = 4;
  const std::int64_t devices = lane_passes(plan.stages, 1, Replicas::Independent);
  return plan.stages.back().layers.end + kTasksOfADevice * devices;
}

/// The tasks that may be spent on a plan whose orders have so many tasks, where `budget` is for
/// small orders.
std::int64_t allowed_tasks(std::int64_t budget, std::int64_t tasks_of_order) {
  return tasks_of_order > kLargeOrder ? budget / kPartOfLarge : budget;
}

/// The tasks that may be spent on one shape while shapes are compared; a shape with large orders is
/// tried with the least number of orders.
std::int64_t tasks_to_compare(std::int64_t tasks_of_order) {
  return tasks_of_order > kLargeOrder ? kLeastOrders * tasks_of_order : kTasksToCompare;
}

class FamilyPlanner {
 public:
  FamilyPlanner(const PlanningContext& context, const FamilyRequest& request)
      : context_(context), request_(request), is_stopped_(context.progress) {}

  FamilyOutcome run();

 private:
  /// All plans of one micro-batch size.
  struct Space {
    std::int64_t micro_batch_size = 1;
    Duration bound;
    std::vector<search::Candidate> shapes;
  };
  struct Attempt {
    SimulatedPlan simulated;
    Score work;
    // The shortage of the closest plan, and that plan, where it does not fit.
    std::optional<MemoryShortage> shortage;
    Plan closest;
  };
  void bound_spaces();
  void raise_bound(Duration most);
  void look_at(Space& space) const;
  void add_shape(const Plan& start, Duration bound);
  void collect_shapes();
  Attempt attempt(const Plan& start, std::int64_t chunks, std::int64_t tasks) const;
  void explain_shortage(const Plan& plan, const CostModel& costs, Attempt& attempt) const;
  void compare();
  Attempt move_layers(const SimulatedPlan& start) const;
  std::int64_t tasks_of_order(const Shape& shape) const {
    const auto groups = static_cast<std::int64_t>(shape.plan.stages.size());
    return count_tasks(request_.family, groups * shape.chunks, shape.plan.num_micro_batches);
  }
  Plan replicate_everywhere() const;
  void refine_cuts();
  void finish();
  void account(const Attempt& attempt);
  Plan plan_of(const search::Candidate& candidate) const;
  bool is_near_enough() const;
  void tell_progress() const;

  const PlanningContext context_;
  const FamilyRequest& request_;
  StopQuestion is_stopped_;
  std::vector<Space> spaces_;
  std::vector<Shape> shapes_;
  std::vector<SimulatedPlan> kept_;  // best first
  FamilyOutcome outcome_;
};

/// Whether the best plan is within the requested gap of the bound, or there is none.
bool FamilyPlanner::is_near_enough() const {
  if (kept_.empty()) return true;
  const Duration best = kept_.front().iteration;
  return is_within_gap(best, outcome_.lower_bound, context_.options.target_gap);
}

void FamilyPlanner::tell_progress() const {
  if (context_.progress == nullptr) return;
  SearchProgress progress{.states = 0,
                          .candidates = outcome_.candidates,
                          .simulated = outcome_.simulated,
                          .best = std::nullopt,
                          .bound = outcome_.lower_bound};
  Duration best = request_.to_beat;
  if (!kept_.empty()) best = std::min(best, kept_.front().iteration);
  if (!best.is_infinite()) progress.best = best;
  context_.progress->update(progress);
}

void FamilyPlanner::look_at(Space& space) const {
  const CostModel costs(context_.profile, context_.topology);
  const PlannerOptions& options = context_.options;
  const bool loops = has_loops(request_.family);
  search::FamilyProblem problem;
  problem.global_batch_size = options.global_batch_size;
  problem.micro_batch_size = space.micro_batch_size;
  problem.split_backward = may_split_backward(request_.family);
  problem.optimizer = options.optimizer;
  problem.ignore_memory = options.ignore_memory;
  problem.has_loops = loops;
  problem.limits.work = kStagesOfBounds / static_cast<std::int64_t>(spaces_.size());
  problem.limits.should_stop = [this] { return is_stopped_(); };
  problem.pins = options.pins;
  const Duration most = std::min(request_.to_beat, kLongest);
  // On devices of several kinds (P1) can be more than (F6), which has the fastest kind alone.
  space.bound = std::min(most, search::bound_of_work_alone(costs, problem));
  if (is_stopped_()) return;
  search::FamilyBound bound(costs, problem);
  space.bound = std::max(space.bound, loops ? bound.of_loops(most) : bound.of_pipelines(most));
  if (space.bound >= std::min(request_.enough, kLongest) || is_stopped_()) return;
  const Duration least = loops ? bound.of_pipelines(kLongest) : space.bound;
  if (least < kLongest) space.shapes = bound.shapes(least, kMostStages);
}

void FamilyPlanner::bound_spaces() {
  for (const std::int64_t size : micro_batch_sizes(context_.options).sizes) {
    spaces_.push_back({.micro_batch_size = size, .bound = {}, .shapes = {}});
  }
  parallel_for(spaces_.size(), context_.options.threads,
               [&](std::size_t i) { look_at(spaces_[i]); });
  outcome_.lower_bound = request_.to_beat;
  for (const Space& space : spaces_) {
    if (space.bound < kLongest) outcome_.lower_bound = std::min(outcome_.lower_bound, space.bound);
  }
  if (request_.to_beat < kLongest) raise_bound(request_.to_beat);
}

/// Raises the bound of list schedules by the exact search for any order, to `most` at most.
void FamilyPlanner::raise_bound(Duration most) {
  if (request_.family != ScheduleFamily::ListScheduled) return;
  if (outcome_.lower_bound >= std::min(request_.enough, most) || is_stopped_()) return;
  const Duration of_any_order =
      bound_of_any_order(context_, most, kSearchLimits.states_of_any_order);
  outcome_.lower_bound = std::max(outcome_.lower_bound, of_any_order);
}

Plan FamilyPlanner::plan_of(const search::Candidate& candidate) const {
  const std::int64_t global = context_.options.global_batch_size;
  return {.global_batch_size = global,
          .micro_batch_size = candidate.micro_batch_size,
          .num_micro_batches = global / candidate.micro_batch_size,
          .gradients = usual_gradients(context_.options),
          .family = request_.family,
          .warmup_depths = {},
          .stages = candidate.stages};
}

void FamilyPlanner::add_shape(const Plan& start, Duration bound) {
  const auto groups = static_cast<std::int64_t>(start.stages.size());
  const auto layers = static_cast<std::int64_t>(context_.profile.layers.size());
  for (const std::int64_t chunks : chunk_counts(request_.family)) {
    if (groups * chunks > layers) continue;
    // The start's own order is kept, as it may be an order of the family.
    if (count_tasks(request_.family, groups * chunks, start.num_micro_batches) > kMostTasks)
      continue;
    Plan plan = start;
    if (context_.options.pins.in_order) put_in_order(plan.stages);
    for (StagePlan& stage : plan.stages) stage.samples.clear();
    shapes_.push_back({.plan = std::move(plan), .chunks = chunks, .bound = bound});
  }
}

/// Makes a plan of one stage on all devices, or on as many as the largest micro-batch has samples,
/// with the smallest micro-batch size that gives each replica a sample.
Plan FamilyPlanner::replicate_everywhere() const {
  const std::vector<std::int64_t> sizes = micro_batch_sizes(context_.options).sizes;
  const std::int64_t replicas =
      std::min<std::int64_t>(context_.topology.device_count(), sizes.back());
  StagePlan whole;
  whole.layers = {0, static_cast<std::int32_t>(context_.profile.layers.size())};
  for (std::int32_t device = 0; device < replicas; ++device) whole.devices.push_back({device});
  search::Candidate candidate;
  candidate.micro_batch_size = *std::lower_bound(sizes.begin(), sizes.end(), replicas);
  candidate.stages = {std::move(whole)};
  return plan_of(candidate);
}

void FamilyPlanner::collect_shapes() {
  for (const Plan& start : request_.starts) add_shape(start, {});
  // A single stage can be put under any family; other shapes cannot where micro-batches are few.
  const bool has_one_stage =
      std::any_of(request_.starts.begin(), request_.starts.end(),
                  [](const Plan& start) { return start.stages.size() == 1; });
  if (!has_one_stage && request_.to_beat >= kLongest) add_shape(replicate_everywhere(), {});
  for (const Space& space : spaces_) {
    for (const search::Candidate& candidate : space.shapes)
      add_shape(plan_of(candidate), candidate.bound);
  }
  std::stable_sort(shapes_.begin(), shapes_.end(),
                   [](const Shape& a, const Shape& b) { return a.bound < b.bound; });
  if (shapes_.size() > kMostShapes) shapes_.resize(kMostShapes);
  // Large and small orders have separate budgets, so that neither keeps the other from being tried.
  std::int64_t tasks_of_small = 0;
  std::int64_t tasks_of_large = 0;
  std::vector<Shape> compared;
  for (Shape& shape : shapes_) {
    const std::int64_t of_order = tasks_of_order(shape);
    const std::int64_t more =
        std::max({tasks_to_compare(of_order), kLeastOrders * of_order, tasks_of_costs(shape.plan)});
    const bool is_large = of_order > kLargeOrder;
    std::int64_t& tasks = is_large ? tasks_of_large : tasks_of_small;
    const std::int64_t most = is_large ? kTasksOfLargeComparison : kTasksOfComparison;
    // A single stage may be the only shape that can be put under the family, so keep it.
    if (tasks + more > most && shape.plan.stages.size() > 1) continue;
    tasks += more;
    compared.push_back(std::move(shape));
  }
  shapes_ = std::move(compared);
}

/// Fills in the shortage of the order that needs the least memory, where no searched order fits.
void FamilyPlanner::explain_shortage(const Plan& plan, const CostModel& costs,
                                     Attempt& attempt) const {
  Plan least = plan;
  least.family = request_.family;
  least = one_by_one(std::move(least));
  if (!validate(least, costs.layer_count(), context_.topology).empty()) return;
  fill_gradient_buckets(least, context_.profile);
  fill_depths(least);
  const auto shortages = simulate::memory_shortages(generate(least), costs.plan_cost(least));
  if (!shortages.empty()) attempt.shortage = shortages.front();
  attempt.closest = std::move(least);
}

FamilyPlanner::Attempt FamilyPlanner::attempt(const Plan& start, std::int64_t chunks,
                                              std::int64_t tasks) const {
  Attempt result;
  const CostModel costs(context_.profile, context_.topology);
  const auto groups = static_cast<std::int64_t>(stages_by_device_group(start).size());
  const std::int64_t orders = std::clamp<std::int64_t>(
      tasks / std::max<std::int64_t>(
                  1, count_tasks(request_.family, groups * chunks, start.num_micro_batches)),
      kLeastOrders, kMostOrders);
  auto made = reorder(start, costs,
                      {.family = request_.family,
                       .chunks_per_device = chunks,
                       .contention = context_.options.contention,
                       .replicas = context_.options.replicas,
                       .evaluations = orders,
                       .should_stop = [this] { return is_stopped_(); }});
  if (std::holds_alternative<NoSchedule>(made)) {
    if (carries_order(request_.family) && chunks == 1) explain_shortage(start, costs, result);
    return result;
  }
  Reordered& reordered = std::get<Reordered>(made);
  Plan plan = std::move(reordered.plan);
  if (!is_as_pinned(plan, context_.options.pins)) return result;
  const PlanCost cost = costs.plan_cost(plan);
  const auto shortages = simulate::memory_shortages(generate(plan), cost);
  if (!shortages.empty()) {
    result.shortage = shortages.front();
    result.closest = std::move(plan);
    return result;
  }
  if (reordered.iteration) {
    ++result.work.simulated;
    result.simulated.iteration = *reordered.iteration;
  } else {
    result.simulated.iteration =
        simulate_and_count({plan, cost, context_.topology, context_.options.mode()}, result.work);
  }
  result.simulated.plan = std::move(plan);
  return result;
}

void FamilyPlanner::account(const Attempt& attempt) {
  outcome_.simulated += attempt.work.simulated;
  if (attempt.simulated.feasible()) {
    if (context_.pool != nullptr) context_.pool->take(attempt.simulated);
    kept_.push_back(attempt.simulated);
    return;
  }
  if (!attempt.shortage) return;
  if (outcome_.shortage && outcome_.shortage->missing() <= attempt.shortage->missing()) return;
  outcome_.shortage = attempt.shortage;
  outcome_.closest = attempt.closest;
}

void FamilyPlanner::compare() {
  std::vector<Attempt> attempts(shapes_.size());
  std::vector<char> is_tried(shapes_.size(), 0);
  const auto try_shape = [&](std::size_t i) {
    is_tried[i] = 1;
    const Shape& shape = shapes_[i];
    const std::int64_t tasks = tasks_to_compare(tasks_of_order(shape));
    attempts[i] = attempt(shape.plan, shape.chunks, tasks);
    // The shape may fit with recomputation.
    if (!attempts[i].simulated.feasible() && !context_.options.pins.recompute) {
      Plan recomputing = shape.plan;
      for (StagePlan& stage : recomputing.stages) stage.recompute = true;
      Attempt other = attempt(recomputing, shape.chunks, tasks);
      if (other.simulated.feasible()) attempts[i] = std::move(other);
    }
    attempts[i].simulated.order = i;
  };
  parallel_for(shapes_.size(), context_.options.threads, [&](std::size_t i) {
    if (!is_stopped_()) try_shape(i);
  });
  // If there is no plan yet, the first shape that fits is made into one even after a stop.
  bool has_plan = request_.to_beat < kLongest ||
                  std::any_of(attempts.begin(), attempts.end(),
                              [](const Attempt& attempt) { return attempt.simulated.feasible(); });
  constexpr std::size_t kMostTries = 16;
  for (std::size_t i = 0; i < std::min(kMostTries, shapes_.size()) && !has_plan; ++i) {
    if (is_tried[i] != 0) continue;
    try_shape(i);
    has_plan = attempts[i].simulated.feasible();
  }
  outcome_.candidates = static_cast<std::int64_t>(shapes_.size());
  for (const Attempt& attempt : attempts) account(attempt);
  std::stable_sort(kept_.begin(), kept_.end(), better);
  if (kept_.size() > kKept) kept_.resize(kKept);
  tell_progress();
}

/// Moves single layers between neighbouring stages as long as that makes the plan faster.
FamilyPlanner::Attempt FamilyPlanner::move_layers(const SimulatedPlan& start) const {
  Attempt best;
  best.simulated = start;
  const auto stages = static_cast<std::int64_t>(start.plan.stages.size());
  const bool is_ordered = carries_order(request_.family);
  // Where the order is fixed by the family, a try takes one simulation.
  const std::int64_t of_order = count_tasks(request_.family, stages, start.plan.num_micro_batches);
  const std::int64_t one = std::max({is_ordered ? kTasksToMove : std::int64_t{1},
                                     kLeastOrders * of_order, tasks_of_costs(start.plan)});
  std::int64_t tries = allowed_tasks(kTasksOfMoves, of_order) / one;
  for (bool improved = true; improved;) {
    improved = false;
    for (std::size_t s = 0; s + 1 < start.plan.stages.size(); ++s) {
      for (const std::int32_t change : {1, -1}) {
        const std::vector<StagePlan>& now = best.simulated.plan.stages;
        if (now[change > 0 ? s + 1 : s].layers.size() < 2) continue;  // no layer to spare
        if (tries-- <= 0 || is_stopped_()) return best;
        Plan plan = best.simulated.plan;
        StagePlan& here = plan.stages[s];
        StagePlan& next = plan.stages[s + 1];
        here.layers.end += change;
        next.layers.begin += change;
        here.gradient_buckets.clear();
        next.gradient_buckets.clear();
        Attempt moved = attempt(plan, plan.chunks_per_device, one);
        best.work.simulated += moved.work.simulated;
        if (moved.simulated.iteration >= best.simulated.iteration) continue;
        moved.simulated.order = start.order;
        best.simulated = std::move(moved.simulated);
        improved = true;
      }
    }
  }
  return best;
}

void FamilyPlanner::refine_cuts() {
  const std::vector<SimulatedPlan> starts = std::exchange(kept_, {});
  std::vector<Attempt> improved(starts.size());
  parallel_for(starts.size(), context_.options.threads,
               [&](std::size_t i) { improved[i] = move_layers(starts[i]); });
  for (const Attempt& attempt : improved) account(attempt);
  std::stable_sort(kept_.begin(), kept_.end(), better);
  tell_progress();
}

void FamilyPlanner::finish() {
  if (!carries_order(request_.family) || kept_.empty() || is_stopped_()) return;
  const std::size_t count = std::min<std::size_t>(2, kept_.size());
  std::vector<Attempt> finished(count);
  parallel_for(count, context_.options.threads, [&](std::size_t i) {
    const SimulatedPlan& start = kept_[i];
    const auto stages = static_cast<std::int64_t>(start.plan.stages.size());
    const std::int64_t of_order =
        count_tasks(request_.family, stages, start.plan.num_micro_batches);
    finished[i] =
        attempt(start.plan, start.plan.chunks_per_device, allowed_tasks(kTasksToFinish, of_order));
    finished[i].simulated.order = start.order;
  });
  for (const Attempt& attempt : finished) account(attempt);
  std::stable_sort(kept_.begin(), kept_.end(), better);
}

FamilyOutcome FamilyPlanner::run() {
  bound_spaces();
  if (outcome_.lower_bound >= request_.enough) return std::move(outcome_);
  outcome_.is_stopped = is_stopped_();
  const bool has_other_plan = request_.to_beat < kLongest;
  if (outcome_.is_stopped && has_other_plan) return std::move(outcome_);
  outcome_.is_searched = true;
  collect_shapes();
  compare();
  if (request_.to_beat >= kLongest && !kept_.empty()) raise_bound(kept_.front().iteration);
  if (!is_near_enough()) refine_cuts();
  if (!is_near_enough()) finish();
  if (!kept_.empty()) {
    outcome_.best = std::move(kept_.front());
    outcome_.lower_bound = std::min(outcome_.lower_bound, outcome_.best.iteration);
    outcome_.shortage.reset();
  }
  return std::move(outcome_);
}

}  // namespace

FamilyOutcome plan_family(const PlanningContext& context, const FamilyRequest& request) {
  return FamilyPlanner(context, request).run();
}

}  // namespace dapple::planner
