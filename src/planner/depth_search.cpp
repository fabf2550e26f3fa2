#include "depth_search.h"

#include <algorithm>
#include <utility>

namespace dapple {
namespace {

/// A step of a timetable takes that part of the time of a simulated action.
constexpr std::int64_t kStepsPerAction = 10;

PlanCost costs_at(Plan plan, const Depths& depths, const CostModel& costs) {
  plan.warmup_depths = depths;
  return costs.plan_cost(plan);
}

/// Where the box is widest for its depth, of equals the last stage.
std::size_t widest(const DepthBox& box) {
  std::size_t best = 0;
  for (std::size_t s = 1; s < box.least.size(); ++s) {
    if (box.most[s] * box.least[best] >= box.most[best] * box.least[s]) best = s;
  }
  return best;
}

/// The depth that is to `least` as `most` is to it, below `most`.
std::int64_t middle(std::int64_t least, std::int64_t most) {
  std::int64_t middle = least;
  while (middle + 1 < most && (middle + 1) * (middle + 1) <= least * most) ++middle;
  return middle;
}

}  // namespace

DepthSearch::DepthSearch(const Scored& start, const CostModel& costs, const PlannerOptions& options)
    : topology_(costs.topology()),
      options_(options),
      start_(start),
      costs_(costs_at(start.plan, Depths(start.plan.stages.size(), 1), costs)),
      limits_(start.plan, costs, options.ignore_memory),
      timetable_(costs_, start.plan.num_micro_batches, topology_,
                 options.contention == Contention::Shared) {
  DepthBox all{.least = Depths(start.plan.stages.size(), 1), .most = limits_.caps()};
  if (options.family == ScheduleFamily::GPipe) {
    all.most.assign(all.most.size(), start.plan.num_micro_batches);
    all.least = all.most;
  }
  open_.push({.bound = {}, .number = boxes_++, .box = std::move(all)});
}

void DepthSearch::push(DepthBox box, Duration to_beat, Score& score) {
  if (!limits_.may_fit(box)) return;
  score.actions += 1 + timetable_.steps() / kStepsPerAction;
  const Duration bound = timetable_.bound(box);
  if (bound < to_beat) open_.push({.bound = bound, .number = boxes_++, .box = std::move(box)});
}

/// Depths do not rise from stage to stage, so a limit holds on one side of the stage.
void DepthSearch::split(const DepthBox& box, Duration to_beat, Score& score) {
  const std::size_t stage = widest(box);
  const std::int64_t last = middle(box.least[stage], box.most[stage]);
  DepthBox shallow = box;
  for (std::size_t s = stage; s < box.most.size(); ++s) {
    shallow.most[s] = std::min(shallow.most[s], last);
  }
  DepthBox deep = box;
  for (std::size_t s = 0; s <= stage; ++s) deep.least[s] = std::max(deep.least[s], last + 1);
  push(std::move(shallow), to_beat, score);
  push(std::move(deep), to_beat, score);
}

void DepthSearch::simulate_at(const Depths& depths, Scored& best, Score& score) const {
  Scored attempt = start_;
  attempt.plan.warmup_depths = depths;
  attempt.iteration =
      simulate_and_count(attempt.plan, {costs_, topology_, options_.contention}, score);
  if (attempt.iteration < best.iteration) best = std::move(attempt);
}

Score DepthSearch::advance(const Stretch& stretch) {
  Score score;
  Scored best = start_;
  best.iteration = stretch.to_beat;
  const auto is_open = [&] { return !open_.empty() && open_.top().bound < best.iteration; };
  while (is_open() && open_.top().bound < stretch.enough && score.actions < stretch.budget) {
    const DepthBox box = open_.top().box;
    open_.pop();
    if (box.least == box.most) {
      simulate_at(box.least, best, score);
    } else {
      split(box, best.iteration, score);
    }
  }
  score.is_settled = !is_open();
  score.bound = score.is_settled ? best.iteration : open_.top().bound;
  if (!best.plan.warmup_depths.empty()) score.best = std::move(best);
  return score;
}

}  // namespace dapple
