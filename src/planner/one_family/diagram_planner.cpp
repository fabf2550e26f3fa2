#include "planner/one_family/diagram_planner.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "dapple/core/parallel.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/request/search_limits.h"
#include "dapple/search/decision_diagram/decision_diagram.h"
#include "dapple/search/placement/placement_space.h"
#include "planner/request/micro_batches.h"
#include "planner/request/search_problems.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

/// What one plan may take of the actions of a width: one of so many parts.
constexpr std::int64_t kPartOfPlan = 8;

/// Whether two plans have the same layers and devices in every stage, and the same micro-batches.
bool has_same_stages(const Plan& a, const Plan& b) {
  return a.micro_batch_size == b.micro_batch_size && a.gradients == b.gradients &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [](const StagePlan& x, const StagePlan& y) {
                      return x.layers == y.layers && x.devices == y.devices &&
                             x.recompute == y.recompute && x.form == y.form;
                    });
}

/// Returns the orders of devices in which plans are sought: by number and, unless devices have to
/// be in that order, by kind and, in problems that are not so large that it would leave less for
/// others, with the devices of several servers in turn.
std::vector<search::DeviceOrder> orders_to_try(const PlanningContext& context) {
  std::vector<search::DeviceOrder> orders{search::order_by_number(context.topology)};
  if (context.options.pins.in_order) return orders;
  std::ranges::move(search::orders_by_kind(context.topology), std::back_inserter(orders));
  const auto layers = static_cast<std::int64_t>(context.profile.layers.size());
  if (layers * context.topology.device_count() <= kSearchLimits.servers_in_turn) {
    std::ranges::move(search::orders_in_turn(context.topology), std::back_inserter(orders));
  }
  return orders;
}

class DiagramPlanner {
 public:
  explicit DiagramPlanner(const PlanningContext& context)
      : context_(context),
        is_stopped_(context.progress),
        evaluator_(context, [this] { return is_stopped_(); }),
        reductions_(std::make_shared<const search::SpreadReductions>(context.topology)),
        orders_(orders_to_try(context)) {}

  ExactPlans run(std::vector<SimulatedPlan> known);

 private:
  /// A search problem, and what is proven of all its plans.
  struct Subproblem {
    search::SearchProblem problem;
    Duration bound;
    // The plans that its last restricted diagram found.
    std::vector<search::Candidate> candidates = {};
    // Whether higher thresholds prove no more by paths: either all have been gone through, of which
    // the one with the least bound is known, or they are too many.
    bool are_paths_done = false;
  };

  /// The steps up to which diagrams may be compiled, and those of each of them.
  struct StepBudget {
    std::int64_t last = 0;
    std::int64_t each = INT64_MAX;
  };

  // The phases of a run, and their steps.
  void close_quickly();
  void find_plans();
  void prove();
  bool close(Duration threshold);
  bool is_least_final() const;
  template <class Use>
  void compile(Duration threshold, search::Cuts cuts, const StepBudget& budget, const Use& use);
  void find_plans_below(Duration threshold, std::size_t width);
  void raise_bounds(Duration threshold, std::size_t width, std::int64_t most_steps);
  void go_through_paths(Duration threshold);
  void simulate(std::vector<search::Candidate> candidates);
  void refine(const std::vector<SimulatedPlan>& plans);
  void account(const Score& score);
  void tell_progress();
  SearchRecord record() const;

  Duration best() const { return best_.empty() ? Duration::infinite() : best_.front().iteration; }
  Duration threshold() const { return context_.threshold(best()); }
  Duration bound() const;
  /// The actions that the simulations of one width may take: the more devices there are, the longer
  /// an action takes, as every replica sends on its own.
  std::int64_t action_budget() const {
    constexpr std::int64_t kDevicesOfAPart = 128;
    return kSearchLimits.actions_of_a_width /
           (1 + context_.topology.device_count() / kDevicesOfAPart);
  }
  bool must_end() const {
    return bound() >= threshold() || work_ >= kSearchLimits.diagram_steps || is_stopped_();
  }

  const PlanningContext context_;
  StopQuestion is_stopped_;
  CandidateEvaluator evaluator_;
  std::shared_ptr<const search::SpreadReductions> reductions_;
  std::vector<Subproblem> problems_;
  // The orders of devices in which plans are sought.
  std::vector<search::DeviceOrder> orders_;
  // The best few plans, best first.
  std::vector<SimulatedPlan> best_;
  // The plans whose refinement has begun.
  std::vector<Plan> refined_;
  SearchRecord record_;
  // The last threshold below which problems were closed quickly.
  Duration closed_below_ = Duration::infinite();
  std::int64_t work_ = 0;
  std::int64_t actions_ = 0;
  std::size_t order_ = 0;
};

ExactPlans DiagramPlanner::run(std::vector<SimulatedPlan> known) {
  best_ = std::move(known);
  record_.cut = micro_batch_sizes(context_.options).cut;
  for (search::SearchProblem& problem : search_problems(context_)) {
    const Duration of_work =
        search::DecisionDiagram::bound_of_work(context_.profile, context_.topology, problem);
    problems_.push_back({.problem = std::move(problem), .bound = of_work});
  }
  // Where a plan of another part of the space is to be beaten, most problems need no plans.
  if (!context_.to_beat.is_infinite()) close_quickly();
  find_plans();
  prove();
  ExactPlans plans{.best = best_, .record = record(), .lower_bound = bound()};
  for (const Subproblem& some : problems_) plans.bounds.push_back(some.bound);
  return plans;
}

/// Closes the problems for which few steps are enough, unless this was tried with the same
/// threshold.
void DiagramPlanner::close_quickly() {
  const Duration limit = threshold();
  if (std::exchange(closed_below_, limit) == limit) return;
  raise_bounds(limit, kSearchLimits.relaxed_width, kSearchLimits.quick_steps);
}

/// Compiles narrow restricted diagrams below thresholds that rise from the least bound to that of
/// the best plan, half as far again each time: low thresholds are cheap, and find the plans that
/// make the last one low. Then diagrams become wider as long as they find better plans.
void DiagramPlanner::find_plans() {
  const Duration least = bound();
  std::int64_t part = kSearchLimits.first_rise;
  for (; !must_end() && part <= kSearchLimits.last_rise;
       part += std::max<std::int64_t>(1, part / 2)) {
    const Duration limit = threshold();
    const Wide rise = Wide{least.ns} * part / kSearchLimits.rise_parts;
    const Duration raised{static_cast<std::int64_t>(std::min<Wide>(least.ns + rise, limit.ns))};
    find_plans_below(raised, kSearchLimits.restricted_width);
    if (raised == limit) break;
  }
  for (std::size_t width = kSearchLimits.restricted_width * kSearchLimits.widening;
       width <= kSearchLimits.last_width && !must_end(); width *= kSearchLimits.widening) {
    const Duration before = best();
    find_plans_below(threshold(), width);
    if (best() == before) return;
  }
}

/// Raises the bound in steps: below the iteration to beat by a part of it that falls to a quarter
/// each time, and at last up to the threshold. The closer the threshold, the longer a step takes;
/// one that would probably take more than is left is not begun.
void DiagramPlanner::prove() {
  const Duration to_beat = std::min(best(), context_.to_beat);
  if (to_beat.is_infinite()) return;
  close_quickly();
  for (std::int64_t parts = kSearchLimits.first_gap_parts; parts <= kSearchLimits.last_gap_parts;
       parts *= 4) {
    const Duration below = to_beat - Duration{to_beat.ns / parts};
    const std::int64_t before = work_;
    if (!close(std::min(below, threshold()))) return;
    constexpr std::int64_t kLeastGrowth = 3;
    if (kLeastGrowth * (work_ - before) > kSearchLimits.diagram_steps - work_) return;
  }
  close(threshold());
}

/// Compiles relaxed diagrams of rising width until all problems are closed below `threshold` or
/// wider diagrams gain little. Returns whether higher thresholds may raise the bound.
bool DiagramPlanner::close(Duration threshold) {
  for (std::size_t width = kSearchLimits.relaxed_width; width <= kSearchLimits.last_width;
       width *= kSearchLimits.widening) {
    if (bound() >= threshold) break;
    if (must_end()) return false;
    const Duration before = bound();
    raise_bounds(threshold, width, kSearchLimits.diagram_steps);
    // Where wider diagrams close little of the gap, still wider ones close less.
    const Duration gap = threshold - before;
    const bool is_wider = width > kSearchLimits.relaxed_width;
    if (is_wider && bound() - before < Duration{gap.ns / kSearchLimits.least_gain}) break;
  }
  // Where the paths below the threshold are too many, those of a part of the gap may be few.
  for (std::int64_t parts = kSearchLimits.gap_parts_of_paths; parts > 0;) {
    if (bound() >= threshold || must_end() || is_least_final()) break;
    const Duration gap = threshold - bound();
    const std::int64_t before = work_;
    go_through_paths(bound() + Duration{divide_up(gap.ns, parts)});
    const bool are_few = work_ - before < kSearchLimits.path_steps / kSearchLimits.growth_of_paths;
    parts = are_few && parts > 1 ? 1 : parts / 2;
  }
  return !must_end() && !is_least_final();
}

/// Whether nothing proves more of a problem with the least bound.
bool DiagramPlanner::is_least_final() const {
  return std::any_of(problems_.begin(), problems_.end(), [&](const Subproblem& some) {
    return some.are_paths_done && some.bound == bound();
  });
}

/// Calls use(problem, diagram, idle) for the diagram of each problem that is not closed below
/// `threshold`, some in parallel, with the threads that are idle meanwhile. Each may take a few
/// times its share of the steps that are left.
template <class Use>
void DiagramPlanner::compile(Duration threshold, search::Cuts cuts, const StepBudget& budget,
                             const Use& use) {
  std::vector<Subproblem*> open;
  for (Subproblem& some : problems_) {
    if (some.bound < threshold) open.push_back(&some);
  }
  std::stable_sort(open.begin(), open.end(),
                   [](const Subproblem* a, const Subproblem* b) { return a->bound < b->bound; });
  const auto at_a_time = static_cast<std::size_t>(kSearchLimits.diagrams_in_parallel);
  for (std::size_t first = 0; first < open.size(); first += at_a_time) {
    const std::int64_t left = budget.last - work_;
    if (left <= 0 || is_stopped_()) return;
    const std::size_t count = std::min(at_a_time, open.size() - first);
    const auto to_come = static_cast<std::int64_t>(open.size() - first);
    const search::Allowance::Limits limits{
        .work = std::min({budget.each, left / static_cast<std::int64_t>(count),
                          kSearchLimits.fair_shares * (left / to_come)}),
        .kept = {context_.options.memory_limit.count / kSearchLimits.part_of_search /
                 kSearchLimits.diagrams_in_parallel},
        .should_stop = [this] { return is_stopped_(); }};
    std::vector<std::int64_t> work(count);
    IdleThreads idle;
    const auto compile_one = [&](std::size_t i) {
      search::DecisionDiagram diagram(context_.profile, context_.topology, open[first + i]->problem,
                                      threshold, limits, cuts, reductions_);
      use(*open[first + i], diagram, idle);
      work[i] = diagram.work();
    };
    parallel_for(count, context_.options.threads, compile_one, &idle);
    for (const std::int64_t steps : work) work_ += steps;
  }
}

/// Compiles restricted diagrams, and simulates the plans found.
void DiagramPlanner::find_plans_below(Duration threshold, std::size_t width) {
  const auto layers = static_cast<std::int64_t>(context_.profile.layers.size());
  const bool are_pinned =
      !context_.options.pins.cuts.empty() || !context_.options.pins.joints.empty();
  const bool are_many = layers > kSearchLimits.many_layers && !are_pinned;
  for (Subproblem& some : problems_) some.candidates.clear();
  compile(threshold, are_many ? search::Cuts::Some : search::Cuts::All,
          {.last = kSearchLimits.diagram_steps / kSearchLimits.part_of_plans},
          [&](Subproblem& some, search::DecisionDiagram& diagram, IdleThreads&) {
            for (const search::DeviceOrder& order : orders_) {
              std::ranges::move(diagram.restricted_plans(width, order),
                                std::back_inserter(some.candidates));
            }
          });
  std::vector<search::Candidate> candidates;
  for (Subproblem& some : problems_) {
    std::move(some.candidates.begin(), some.candidates.end(), std::back_inserter(candidates));
  }
  simulate(std::move(candidates));
  tell_progress();
}

/// Compiles relaxed diagrams of so many steps at most, and keeps the bounds that they prove.
void DiagramPlanner::raise_bounds(Duration threshold, std::size_t width, std::int64_t most_steps) {
  compile(threshold, search::Cuts::All, {.last = kSearchLimits.diagram_steps, .each = most_steps},
          [&](Subproblem& some, search::DecisionDiagram& diagram, IdleThreads&) {
            some.bound = std::max(some.bound, diagram.relaxed_bound(width));
          });
  tell_progress();
}

/// Goes through the paths of relaxed diagrams one by one, and keeps the bounds that this proves.
/// Where that takes too long below one threshold, it takes longer below higher ones, and where it
/// finds the path with the least bound, that path is below higher ones, too.
void DiagramPlanner::go_through_paths(Duration threshold) {
  compile(threshold, search::Cuts::All,
          {.last = kSearchLimits.diagram_steps, .each = kSearchLimits.path_steps},
          [&](Subproblem& some, search::DecisionDiagram& diagram, IdleThreads& idle) {
            if (some.are_paths_done) return;
            some.bound = std::max(some.bound, diagram.bound_of_paths(&idle));
            some.are_paths_done = diagram.is_over() || some.bound < threshold;
          });
  tell_progress();
}

/// Simulates candidates by rising bound, as long as they may be faster than the best plan, and
/// refines the best of these.
void DiagramPlanner::simulate(std::vector<search::Candidate> candidates) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.bound < b.bound; });
  record_.candidates += static_cast<std::int64_t>(candidates.size());
  const std::int64_t last = actions_ + action_budget();
  const auto bytes_of = [&](const search::Candidate& some) {
    return simulation_bytes(some, context_.options);
  };
  const int threads = threads_with_room(candidates, bytes_of, context_.options);
  std::vector<SimulatedPlan> found;
  for (std::size_t first = 0; first < candidates.size() && actions_ < last && !is_stopped_();
       first += kSearchLimits.batch) {
    if (candidates[first].bound >= best()) break;
    const std::size_t count = std::min(kSearchLimits.batch, candidates.size() - first);
    std::vector<Score> scores(count);
    // There is nothing to beat, as refinement may change the order of the plans.
    parallel_for(count, threads, [&](std::size_t i) {
      scores[i] = evaluator_.score(candidates[first + i], order_ + i, Duration::infinite(),
                                   action_budget() / kPartOfPlan);
    });
    order_ += count;
    for (const Score& score : scores) {
      account(score);
      if (score.best.feasible()) found.push_back(score.best);
    }
  }
  std::erase_if(found, [&](const SimulatedPlan& some) {
    return std::any_of(refined_.begin(), refined_.end(),
                       [&](const Plan& other) { return has_same_stages(some.plan, other); });
  });
  std::stable_sort(found.begin(), found.end(), better);
  if (found.size() > kSearchLimits.refined_plans) found.resize(kSearchLimits.refined_plans);
  refine(found);
}

/// Moves layers between the stages of each plan and changes its depths by threshold accepting.
void DiagramPlanner::refine(const std::vector<SimulatedPlan>& plans) {
  std::vector<Score> scores(plans.size());
  const auto bytes_of = [&](const SimulatedPlan& some) {
    return simulation_bytes(some, context_.options);
  };
  parallel_for(plans.size(), threads_with_room(plans, bytes_of, context_.options),
               [&](std::size_t i) {
                 scores[i] = evaluator_.refine_stages(plans[i], action_budget() / kPartOfPlan);
               });
  for (const Score& score : scores) account(score);
  for (const SimulatedPlan& some : plans) refined_.push_back(some.plan);
}

void DiagramPlanner::account(const Score& score) {
  actions_ += score.actions;
  record_.simulated += score.simulated;
  keep_in(context_.pool, score);
  if (!score.best.feasible()) return;
  best_.push_back(score.best);
  std::stable_sort(best_.begin(), best_.end(), better);
  if (best_.size() > kSearchLimits.batch) best_.resize(kSearchLimits.batch);
}

/// Returns the least bound of all problems and of the best plan.
Duration DiagramPlanner::bound() const {
  Duration least = best();
  for (const Subproblem& some : problems_) least = std::min(least, some.bound);
  return least;
}

void DiagramPlanner::tell_progress() {
  if (context_.progress == nullptr) return;
  SearchProgress progress{.states = work_,
                          .candidates = record_.candidates,
                          .simulated = record_.simulated,
                          .best = std::nullopt,
                          .bound = bound()};
  if (!best_.empty()) progress.best = best();
  context_.progress->update(progress);
}

SearchRecord DiagramPlanner::record() const {
  SearchRecord record = record_;
  record.planner = kDiagramPlanner;
  record.states = work_;
  record.open = std::count_if(problems_.begin(), problems_.end(),
                              [&](const Subproblem& some) { return some.bound < best(); });
  record.searched = diagram_dimensions(further_dimensions(context_.options, context_.topology));
  for (std::string& pinned : cuts_of_pins(context_.options.pins, context_.profile)) {
    record.cut.push_back(std::move(pinned));
  }
  if (context_.options.family == ScheduleFamily::GPipe) record.cut.emplace_back(kCutOrders);
  record.cut.emplace_back(kCutOfDiagrams);
  return record;
}

bool are_states_few(const PlanningContext& context, const search::PlacementSpace& placements) {
  const auto layers = static_cast<std::int64_t>(context.profile.layers.size());
  const std::int64_t states = search::DecisionDiagram::states_at_cut(placements);
  return states <= kSearchLimits.diagram_states &&
         (layers + 1) * states <= kSearchLimits.all_diagram_states;
}

}  // namespace

bool has_room_for_diagrams(const PlanningContext& context) {
  // In diagrams a replica is one device.
  return !has_larger_groups(context.profile) &&
         are_states_few(context, search::PlacementSpace(context.topology));
}

bool is_for_diagrams(const PlanningContext& context) {
  const search::PlacementSpace placements(context.topology, context.options.pins.in_order);
  if (placements.is_complete() || !are_states_few(context, placements)) return false;
  const auto layers = static_cast<std::int64_t>(context.profile.layers.size());
  return !placements.has_all_allowed(context.options.pins) ||
         layers * context.topology.device_count() > kSearchLimits.large;
}

ExactPlans plan_by_diagrams(const PlanningContext& context, std::vector<SimulatedPlan> known) {
  return DiagramPlanner(context).run(std::move(known));
}

}  // namespace dapple::planner
