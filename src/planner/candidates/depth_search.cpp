#include "dapple/planner/candidates/depth_search.h"

#include <algorithm>
#include <utility>

#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {
namespace {

/// After this many splits that do not raise the bound, boxes are split at their last open stage,
/// and where links are shared they are simulated from time to time.
constexpr std::int32_t kUndecidedSplits = 4;

PlanCost costs_at(Plan plan, const Depths& depths, const CostModel& costs) {
  plan.warmup_depths = lane_depths(plan, depths);
  return costs.plan_cost(plan);
}

/// Returns the stage at which the ratio of the box's largest to its least depth is largest; of
/// equals, the last one.
std::size_t widest(const search::DepthBox& box) {
  std::size_t best = 0;
  for (std::size_t s = 1; s < box.least.size(); ++s) {
    if (box.most[s] * box.least[best] >= box.most[best] * box.least[s]) best = s;
  }
  return best;
}

/// Returns the last stage whose depth is not fixed; it limits how long events are identical at all
/// depths of the box. Requires: some depth is not fixed.
std::size_t last_open(const search::DepthBox& box) {
  std::size_t stage = box.least.size() - 1;
  while (box.least[stage] == box.most[stage]) --stage;
  return stage;
}

/// Returns the geometric mean of `least` and `most`, rounded down, below `most`. Requires:
/// least < most.
std::int64_t middle(std::int64_t least, std::int64_t most) {
  std::int64_t middle = least;
  while (middle + 1 < most && (middle + 1) * (middle + 1) <= least * most) ++middle;
  return middle;
}

/// Derives earliest starts that hold at all depths of the box from a simulation at its least
/// depths: the simulated starts up to the moment from which depths differ, and that moment for all
/// later ones.
search::EarliestStarts beginning_of(const Recorded& recorded, const search::DepthBox& box,
                                    std::int64_t num_micro_batches) {
  const auto stage_of = [](const TimedAction& timed) { return timed.action.stage.position(); };
  // The earliest moment at which a stage with an open depth has run all forwards that precede its
  // first backward at its least depth.
  Duration parting = recorded.result.iteration;
  for (const TimedAction& timed : recorded.result.timeline.actions) {
    const std::size_t s = stage_of(timed);
    const bool is_last = timed.action.index + 1 == box.least[s] && box.least[s] < box.most[s];
    if (is_last && timed.action.kind == ActionKind::Forward) parting = std::min(parting, timed.end);
  }
  const std::vector<Duration> alike(static_cast<std::size_t>(num_micro_batches), parting);
  search::EarliestStarts starts{.forwards = {box.least.size(), alike},
                                .backwards = {box.least.size(), alike}};
  for (const TimedAction& timed : recorded.result.timeline.actions) {
    const auto position = static_cast<std::size_t>(timed.action.index);
    if (timed.start >= parting) continue;
    const bool is_forward = timed.action.kind == ActionKind::Forward;
    if (!is_forward && timed.action.kind != ActionKind::Backward) continue;
    // Of independent replicas, the first to start counts.
    Duration& start = (is_forward ? starts.forwards : starts.backwards)[stage_of(timed)][position];
    start = std::min(start, timed.start);
  }
  return starts;
}

}  // namespace

DepthSearch::DepthSearch(const SimulatedPlan& start, const CostModel& costs,
                         const PlannerOptions& options, std::function<bool()> should_stop)
    : topology_(costs.topology()),
      options_(options),
      should_stop_(std::move(should_stop)),
      start_(start),
      costs_(costs_at(start.plan, Depths(start.plan.stages.size(), 1), costs)),
      limits_(start.plan, costs, options.ignore_memory, options.transfers),
      earliest_start_bound_({start.plan, costs_, topology_, options.mode()}) {
  search::DepthBox all{.least = Depths(start.plan.stages.size(), 1), .most = limits_.caps()};
  if (options.family == ScheduleFamily::GPipe) {
    all.most.assign(all.most.size(), start.plan.num_micro_batches);
    all.least = all.most;
  }
  if (!limits_.narrow(all) || !limits_.may_fit(all)) return;
  open_.push({.bound = {}, .number = boxes_++, .box = std::move(all), .splits = 0});
}

void DepthSearch::push(search::DepthBox box, const OpenBox& parent, const SimulatedPlan& best,
                       Score& score) {
  if (!limits_.narrow(box) || !limits_.may_fit(box)) return;
  score.actions += 1 + earliest_start_bound_.steps() / kStepsPerAction;
  const Duration bound =
      std::max(parent.bound, earliest_start_bound_.bound(box, nullptr, best.iteration));
  if (bound >= best.iteration) return;
  open_.push({.bound = bound,
              .number = boxes_++,
              .box = std::move(box),
              .splits = bound > parent.bound ? 0 : parent.splits + 1});
}

/// Splits a box at one stage. As depths do not rise from stage to stage, an upper limit at the
/// stage also holds on all later stages, and a lower limit on all earlier ones.
void DepthSearch::split(const OpenBox& open, const SimulatedPlan& best, Score& score) {
  const search::DepthBox& box = open.box;
  const std::size_t stage = open.splits < kUndecidedSplits ? widest(box) : last_open(box);
  const std::int64_t last = middle(box.least[stage], box.most[stage]);
  search::DepthBox shallow = box;
  for (std::size_t s = stage; s < box.most.size(); ++s) {
    shallow.most[s] = std::min(shallow.most[s], last);
  }
  search::DepthBox deep = box;
  for (std::size_t s = 0; s <= stage; ++s) deep.least[s] = std::max(deep.least[s], last + 1);
  push(std::move(shallow), open, best, score);
  push(std::move(deep), open, best, score);
}

/// Simulates a box at its least depths, and puts it back with the bound that follows from the
/// events that are identical at all its depths.
void DepthSearch::begin(OpenBox open, SimulatedPlan& best, Score& score) {
  SimulatedPlan attempt = start_;
  attempt.plan.warmup_depths = open.box.least;
  const Recorded recorded =
      record_and_count({attempt.plan, costs_, topology_, options_.mode()}, score, should_stop_);
  attempt.iteration = recorded.result.iteration;
  if (attempt.iteration.is_infinite()) return open_.push(std::move(open));
  const search::EarliestStarts known =
      beginning_of(recorded, open.box, start_.plan.num_micro_batches);
  score.actions += 1 + earliest_start_bound_.steps() / kStepsPerAction;
  const Duration bound =
      std::max(open.bound, earliest_start_bound_.bound(open.box, &known, best.iteration));
  open.splits = bound > open.bound ? 0 : open.splits + 1;
  open.bound = bound;
  const bool is_better = attempt.iteration < best.iteration;
  if (is_better && limits_.fit_as_they_are(open.box.least)) best = std::move(attempt);
  if (open.bound < best.iteration) open_.push(std::move(open));
}

/// Whether all depths of the box are the same warm-up depths of the plan.
bool DepthSearch::is_one_plan(const search::DepthBox& box) const {
  return lane_depths(start_.plan, box.least) == lane_depths(start_.plan, box.most);
}

/// Simulates a box of a single plan, if it fits; puts it back where the simulation was abandoned.
void DepthSearch::simulate(OpenBox open, SimulatedPlan& best, Score& score) {
  // Boxes are checked without all that waits at boundaries.
  if (!limits_.fit_as_they_are(open.box.least)) return;
  SimulatedPlan attempt = start_;
  attempt.plan.warmup_depths = lane_depths(attempt.plan, open.box.least);
  attempt.iteration = simulate_and_count({attempt.plan, costs_, topology_, options_.mode()}, score,
                                         should_stop_, best.iteration);
  if (attempt.iteration.is_infinite()) return open_.push(std::move(open));
  if (attempt.iteration < best.iteration) best = std::move(attempt);
}

Score DepthSearch::advance(Duration threshold, const SearchBudget& budget) {
  Score score;
  SimulatedPlan best = start_;
  best.iteration = threshold;
  const auto is_open = [&] { return !open_.empty() && open_.top().bound < best.iteration; };
  while (is_open() && open_.top().bound < budget.enough && score.actions < budget.actions) {
    if (should_stop_ && should_stop_()) break;
    OpenBox open = open_.top();
    open_.pop();
    if (is_one_plan(open.box)) {
      simulate(std::move(open), best, score);
    } else if (shares_links(options_.contention) && open.splits > kUndecidedSplits &&
               open.splits % kUndecidedSplits == 0 && !deals_micro_batches(start_.plan)) {
      begin(std::move(open), best, score);
    } else {
      split(open, best, score);
    }
  }
  score.is_settled = !is_open();
  score.bound = score.is_settled ? best.iteration : open_.top().bound;
  if (!best.plan.warmup_depths.empty()) score.best = std::move(best);
  return score;
}

}  // namespace dapple::planner
