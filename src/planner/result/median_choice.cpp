#include "planner/result/median_choice.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "dapple/cost/buckets.h"
#include "dapple/cost/cost_model.h"
#include "dapple/plan/optimality.h"
#include "dapple/planner/candidates/depths.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/candidates/jitter.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/schedule/schedule.h"
#include "dapple/simulate/simulate.h"
#include "planner/candidates/candidate_evaluator.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

/// Plans are compared in so many draws first, and the best few of them in all.
constexpr std::int64_t kFewDraws = 20;
constexpr std::size_t kInAllDraws = 2;
/// The number of shapes that are tried at other depths, and of steps to neighbouring depths.
constexpr std::size_t kShapes = 4;
constexpr int kSteps = 4;
/// The actions simulated after which no further plan is tried.
constexpr std::int64_t kMostActions = 40'000'000;

/// A plan with its iteration without jitter, and what it takes in some draws.
struct DrawnPlan {
  Plan plan;
  Duration iteration;
  Duration median;
  Duration ninety_fifth;

  friend bool operator<(const DrawnPlan& a, const DrawnPlan& b) {
    return std::tie(a.median, a.ninety_fifth, a.iteration) <
           std::tie(b.median, b.ninety_fifth, b.iteration);
  }
};

/// Whether two of the compared plans are the same: of each shape there are those on the devices of
/// one plan alone.
bool is_same(const Plan& a, const Plan& b) {
  return a.warmup_depths == b.warmup_depths && have_same_shape(a, b);
}

class MedianChoice {
 public:
  MedianChoice(const MadePlan& fastest, const Topology& topology, const PlanningContext& context);

  /// Compares all plans, and returns the best; the fastest one, unless another is better.
  const DrawnPlan& run(const PlanPool& pool, const std::optional<PlanRestriction>& restriction);
  /// The best plan so far, at first the fastest one.
  const DrawnPlan& best() const { return best_.front(); }
  bool is_fastest(const Plan& plan) const { return is_same(plan, tried_.front()); }
  std::int64_t compared() const { return std::ssize(tried_); }

 private:
  void compare(std::vector<Plan> plans);
  void add_depths(const DrawnPlan& start, std::vector<Plan>& plans) const;
  bool try_neighbours();
  std::optional<DrawnPlan> draw(const Plan& plan, std::int64_t draws);
  int threads_of(const Plan& plan) const;
  bool must_end() const { return actions_ >= kMostActions || is_stopped_(); }

  const PlanDocument& fastest_;
  const Topology& topology_;
  const PlannerOptions& options_;
  const CostModel costs_;
  StopQuestion is_stopped_;
  const std::int64_t draws_;
  // The fastest plan is the first.
  std::vector<Plan> tried_;
  // Compared in all draws, best first.
  std::vector<DrawnPlan> best_;
  std::int64_t actions_ = 0;
};

MedianChoice::MedianChoice(const MadePlan& fastest, const Topology& topology,
                           const PlanningContext& context)
    : fastest_(fastest.document),
      topology_(topology),
      options_(context.options),
      costs_(fastest.document.profile, topology),
      is_stopped_(context.progress),
      draws_(draws_of(fastest.evaluation.schedule)) {
  // The fastest plan is compared whatever happens.
  const ReadyPlan plan{fastest.evaluation.schedule, fastest.evaluation.costs, topology,
                       options_.mode()};
  const std::vector<Duration> times = drawn_iterations(plan, static_cast<std::size_t>(draws_),
                                                       *options_.jitter, threads_of(fastest_.plan));
  best_.push_back({.plan = fastest_.plan,
                   .iteration = fastest_.prediction.iteration,
                   .median = percentile(times, 50),
                   .ninety_fifth = percentile(times, 95)});
  tried_.push_back(fastest_.plan);
}

int MedianChoice::threads_of(const Plan& plan) const {
  const auto bytes_of = [&](const Plan& some) {
    return simulation_bytes(some.stages, some.num_micro_batches, options_.replicas);
  };
  return threads_with_room(std::span(&plan, 1), bytes_of, options_);
}

/// Simulates a plan in the first draws. Returns nothing for one that may not be chosen, or after a
/// stop.
std::optional<DrawnPlan> MedianChoice::draw(const Plan& plan, std::int64_t draws) {
  const PlanCost costs = costs_.plan_cost(plan);
  const Schedule schedule = generate(plan, options_.replicas);
  if (draws_of(schedule) != draws_) return std::nullopt;
  const std::function<bool()> should_stop = [this] { return is_stopped_(); };
  const SimulationMode mode = options_.mode();
  DrawnPlan drawn{.plan = plan, .iteration = {}, .median = {}, .ninety_fifth = {}};
  drawn.iteration = simulate::simulate(schedule, costs, topology_,
                                       {.contention = mode.contention,
                                        .transfers = mode.transfers,
                                        .record = false,
                                        .should_stop = should_stop})
                        .iteration;
  actions_ += (draws + 1) * count_actions(schedule);
  const Duration fastest = fastest_.prediction.iteration;
  if (drawn.iteration < fastest || drawn.iteration > slowest_choice(fastest, *options_.jitter)) {
    return std::nullopt;
  }
  const std::vector<Duration> times =
      drawn_iterations({schedule, costs, topology_, mode}, static_cast<std::size_t>(draws),
                       *options_.jitter, threads_of(plan), should_stop);
  if (is_stopped_()) return std::nullopt;
  drawn.median = percentile(times, 50);
  drawn.ninety_fifth = percentile(times, 95);
  return drawn;
}

/// Compares plans in a few draws, and the best of them in all.
void MedianChoice::compare(std::vector<Plan> plans) {
  std::vector<DrawnPlan> some;
  for (Plan& plan : plans) {
    if (must_end()) break;
    if (std::any_of(tried_.begin(), tried_.end(),
                    [&](const Plan& other) { return is_same(plan, other); })) {
      continue;
    }
    if (auto drawn = draw(plan, kFewDraws)) some.push_back(*std::move(drawn));
    tried_.push_back(std::move(plan));
  }
  std::stable_sort(some.begin(), some.end());
  if (some.size() > kInAllDraws) some.resize(kInAllDraws);
  for (const DrawnPlan& promising : some) {
    if (must_end()) break;
    if (auto drawn = draw(promising.plan, draws_)) best_.push_back(*std::move(drawn));
  }
  std::stable_sort(best_.begin(), best_.end());
}

/// Adds a plan with the depth families, depths for several targets and the deepest that fit.
void MedianChoice::add_depths(const DrawnPlan& start, std::vector<Plan>& plans) const {
  const std::size_t stages = start.plan.stages.size();
  const std::int64_t micro_batches = start.plan.num_micro_batches;
  const DepthLimits limits(start.plan, costs_, options_.ignore_memory, options_.transfers);
  std::vector<Depths> wanted = depth_families(stages, micro_batches);
  wanted.push_back(limits.caps());
  const PlanCost costs = costs_.plan_cost(start.plan);
  for (const std::int64_t slack : {1, 2, 3}) {
    for (const Duration target : {start.iteration, start.median}) {
      wanted.push_back(depths_for_target(start.plan, costs, target, slack));
    }
  }
  for (Depths& depths : wanted) {
    auto fitting = limits.fit(std::move(depths));
    if (!fitting) continue;
    plans.push_back(start.plan);
    plans.back().warmup_depths = lane_depths(plans.back(), *std::move(fitting));
  }
}

/// Compares the best plan with those at neighbouring depths. Returns whether one of them is better.
bool MedianChoice::try_neighbours() {
  const Plan start = best().plan;
  const DepthLimits limits(start, costs_, options_.ignore_memory, options_.transfers);
  std::vector<Plan> plans;
  for (const Depths& wanted : neighbours(start)) {
    auto fitting = limits.fit(wanted);
    if (!fitting) continue;
    plans.push_back(start);
    plans.back().warmup_depths = lane_depths(plans.back(), *std::move(fitting));
  }
  compare(std::move(plans));
  return !is_same(best().plan, start);
}

const DrawnPlan& MedianChoice::run(const PlanPool& pool,
                                   const std::optional<PlanRestriction>& restriction) {
  const Plan& own = fastest_.plan;
  std::vector<Plan> plans;
  for (SimulatedPlan& some : pool.plans_of(own.family)) {
    const StagePlan& first = some.plan.stages.front();
    // For a target the record of the search is that of one number of replicas.
    const bool is_of_part = first.devices.size() == own.stages.front().devices.size() &&
                            first.recompute == own.stages.front().recompute;
    if (have_same_shape(some.plan, own) || (restriction && !is_of_part)) continue;
    some.plan.parallelism = own.parallelism;
    some.plan.stage_forms = own.stage_forms;
    fill_gradient_buckets(some.plan, fastest_.profile);
    plans.push_back(std::move(some.plan));
  }
  compare(std::move(plans));
  const bool are_depths_free = own.family == ScheduleFamily::OneFOneB &&
                               options_.has_free_depths() &&
                               !(restriction && restriction->least_depths);
  if (!are_depths_free) return best();
  plans.clear();
  for (std::size_t i = 0; i < std::min(kShapes, best_.size()); ++i) add_depths(best_[i], plans);
  compare(std::move(plans));
  for (int step = 0; step < kSteps && try_neighbours(); ++step) {}
  return best();
}

}  // namespace

void choose_by_median(MadePlan& made, const PlanPool& pool, const PlanningContext& context,
                      const std::optional<PlanRestriction>& restriction) {
  PlanDocument& document = made.document;
  const PlannerOptions& options = context.options;
  const Topology topology{document.topology};
  const Duration fastest = document.prediction.iteration;
  MedianChoice choice(made, topology, context);
  const Duration median_of_fastest = choice.best().median;
  const DrawnPlan best = choice.run(pool, restriction);
  if (!choice.is_fastest(best.plan)) {
    const std::optional<Duration> bound = document.prediction.lower_bound;
    document.plan = best.plan;
    made.frugal.reset();
    made.evaluation = evaluate(document.plan, document.profile, topology, options.mode());
    document.prediction = made.evaluation.prediction;
    set_proven_bound(document.prediction, bound);
  }
  const ReadyPlan plan{made.evaluation.schedule, made.evaluation.costs, topology, options.mode()};
  document.prediction.jitter = {.median = best.median,
                                .ninety_fifth = best.ninety_fifth,
                                .draws = draws_of(plan.schedule),
                                .with_slow_device = with_slow_devices(plan, options.threads)};
  document.search.fastest = fastest;
  document.request->jitter = options.jitter;
  document.warnings = warnings_of(document, topology);
  made.under_jitter = {.median_of_fastest = median_of_fastest, .compared = choice.compared()};
}

}  // namespace dapple::planner
