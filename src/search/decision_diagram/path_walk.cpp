#include "search/decision_diagram/path_walk.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/search/bounds/earliest_start_bound.h"

namespace dapple::search {
namespace {

/// A stage in front of a path takes as long as so many stages in front of a node of a diagram, and
/// one more for each stage of the path.
constexpr std::int64_t kStepsOfAPath = 4;

/// The boxes of depths that are split for one path, beyond which the least bound of those left
/// stands.
constexpr int kMostSplits = 64;

/// Depths of a path, and a lower bound on its plans at these.
struct OpenBox {
  Duration bound;
  DepthBox box;

  friend bool operator<(const OpenBox& a, const OpenBox& b) { return a.bound > b.bound; }
};

/// Splits a box at the stage with the widest range, into smaller and larger depths. Depths do not
/// rise from stage to stage. Requires: it has several depth vectors.
std::pair<DepthBox, DepthBox> split(const DepthBox& box) {
  std::size_t widest = 0;
  for (std::size_t s = 1; s < box.least.size(); ++s) {
    if (box.most[s] - box.least[s] > box.most[widest] - box.least[widest]) widest = s;
  }
  const std::int64_t middle = (box.least[widest] + box.most[widest]) / 2;
  DepthBox shallow = box;
  for (std::size_t s = widest; s < box.most.size(); ++s) {
    shallow.most[s] = std::min(shallow.most[s], middle);
  }
  DepthBox deep = box;
  for (std::size_t s = 0; s <= widest; ++s) deep.least[s] = std::max(deep.least[s], middle + 1);
  return {std::move(shallow), std::move(deep)};
}

bool is_possible(const DepthBox& box) {
  for (std::size_t s = 0; s < box.least.size(); ++s) {
    if (box.least[s] > box.most[s]) return false;
  }
  return true;
}

}  // namespace

PathWalk::PathWalk(Shared& shared)
    : shared_(shared),
      micro_batches_(shared.problem.num_micro_batches()),
      end_of_model_{shared.costs.layer_count()},
      boundaries_(end_of_model_.next().position()) {}

std::vector<PathWalk::Begun> PathWalk::begin(Duration& threshold) {
  constexpr std::size_t kFew = 256;
  // More would only take memory.
  constexpr std::size_t kMany = 4096;
  // The work of a path with so many stages is seldom worth a thread of its own.
  constexpr std::size_t kMostStages = 4;
  std::vector<Begun> begun;
  threshold_ = threshold;
  begun_ = &begun;
  prepend_stages(end_of_model_, AllocationClasses::kNoDevices);
  for (std::size_t stages = 1; stages < kMostStages && begun.size() < kFew; ++stages) {
    std::vector<Begun> shorter;
    shorter.swap(begun);
    for (const Begun& some : shorter) {
      if (begun.size() < kMany) {
        go_on_from(some);
      } else {
        begun.push_back(some);
      }
    }
  }
  begun_ = nullptr;
  settle_steps();
  threshold = threshold_;
  return begun;
}

Duration PathWalk::go_through(const Begun& begun, Duration threshold) {
  threshold_ = threshold;
  // Other walks may have ended the allowance.
  settle_steps();
  go_on_from(begun);
  settle_steps();
  return threshold_;
}

void PathWalk::go_on_from(const Begun& begun) {
  if (begun.path.back().bound >= threshold_ || is_over_) return;
  path_ = begun.path;
  prepend_stages(begun.begin, begun.used);
  path_.clear();
}

/// Counts steps, and tells the allowance of them now and then. Returns whether the walk may go on.
bool PathWalk::spend(std::int64_t steps) {
  constexpr std::int64_t kStepsAtATime = 4096;
  steps_ += steps;
  if (steps_ >= kStepsAtATime) settle_steps();
  return !is_over_;
}

void PathWalk::settle_steps() {
  const std::scoped_lock lock(shared_.mutex);
  is_over_ = !shared_.allowance.spend(std::exchange(steps_, 0));
}

/// Returns ClassStages::options().
const StageOptions* PathWalk::options(CutIndex end, StageClassIndex devices, std::int32_t most) {
  ClassStages& stages = shared_.stages;
  constexpr int kBitsOfMost = 24;
  const std::int64_t spread = most == ClassStages::kAnyNumber ? 0 : std::int64_t{most} + 1;
  check(spread < std::int64_t{1} << kBitsOfMost, "a server has too many devices");
  const std::size_t place = end.position() * stages.stage_class_count() + devices.position();
  const std::uint64_t key =
      std::uint64_t{place} << kBitsOfMost | static_cast<std::uint64_t>(spread);
  const auto [entry, is_new] = options_.try_emplace(key, nullptr);
  if (is_new) {
    const std::scoped_lock lock(shared_.mutex);
    entry->second = stages.options(end, devices, most);
  }
  return entry->second;
}

/// Returns the boundary at `cut` between a stage on these devices and the one behind it.
const BoundaryLowerBound& PathWalk::boundary(CutIndex cut, StageClassIndex devices,
                                             const Step& behind) {
  std::optional<ClassStages::Boundaries>& here = boundaries_[cut];
  if (!here) here.emplace(shared_.stages, cut);
  const BoundaryLowerBound* known = here->find(devices, behind.devices, behind.front);
  if (known != nullptr) return *known;
  const std::scoped_lock lock(shared_.mutex);
  return here->between(devices, behind.devices, behind.front);
}

/// Puts every stage that ends at `cut` in front of the path.
void PathWalk::prepend_stages(CutIndex cut, AllocationClassIndex used) {
  for (const StageClassIndex devices : shared_.stages.stage_classes()) {
    const auto used_after = shared_.stages.classes().sum(used, shared_.stages.class_of(devices));
    if (!used_after) continue;
    for (const BoundaryKind front : shared_.stages.boundary_kinds()) {
      Step step{.stage = {},
                .boundary = {},
                .label = {},
                .bound = {},
                .devices = devices,
                .front = front};
      ClassStages::SharedServers shared = 0;
      if (!path_.empty()) {
        const Step& behind = path_.back();
        const BoundaryLowerBound& least = boundary(cut, devices, behind);
        if (!least) continue;
        step.boundary = *least;
        shared = behind.shared;
      }
      step.shared = shared_.stages.shared_with(devices, shared, front);
      const std::int32_t most = shared_.stages.most_on_a_server(devices, shared, front);
      const StageOptions* stages = options(cut, devices, most);
      if (stages == nullptr) continue;
      extend(step, {cut, *used_after, *stages});
      if (is_over_) return;
    }
  }
}

/// Puts stages in front of the path, one after another.
void PathWalk::extend(const Step& next, const Extension& extension) {
  Step step = next;
  for (CutIndex begin = extension.stages.begins_end().previous(); begin >= extension.stages.first();
       begin = begin.previous()) {
    for (const StageOption& option : extension.stages.at(begin)) {
      if (option.figures.work(micro_batches_) >= threshold_) continue;
      if (!spend(kStepsOfAPath + std::ssize(path_) + 1)) return;
      extend_by(option, begin, step, extension);
      if (is_over_) return;
    }
  }
}

/// Puts a stage in front of the path, and goes on from it if it may belong to a plan below the
/// threshold. Of `step`, what depends on the stage is set.
void PathWalk::extend_by(const StageOption& option, CutIndex begin, Step& step,
                         const Extension& extension) {
  const AllocationClassIndex left = shared_.stages.classes().rest(extension.used_after);
  const bool is_first = begin == CutIndex{};
  if (is_first && step.front == BoundaryKind::Local) return;
  const PrefixCompletions::PrefixCompletion* front =
      is_first ? nullptr : shared_.completions.at(begin, left);
  if (!is_first && front == nullptr) return;
  const std::int64_t stages = std::ssize(path_) + 1;
  const std::optional<std::int32_t>& pinned = shared_.problem.pins.stages;
  if (pinned && (is_first ? stages != *pinned : stages >= *pinned)) return;
  if (!shared_.problem.pins.allow(layers_between(begin, extension.cut),
                                  shared_.stages.replicas(step.devices), option.form.recompute)) {
    return;
  }
  step.stage = option.figures;
  step.label = path_.empty()
                   ? initial_label(step.stage, micro_batches_)
                   : extend_label(step.stage, step.boundary, path_.back().label, micro_batches_);
  step.bound = std::max(step.label.end, path_.empty() ? Duration{} : path_.back().bound);
  if (!is_first) step.bound = std::max(step.bound, completed(front->function, step.label));
  if (step.bound >= threshold_) return;
  path_.push_back(step);
  const BeforePart before = is_first ? BeforePart{}
                                     : BeforePart{.end = front->function.end,
                                                  .span = front->function.span,
                                                  .slowest = front->function.slowest};
  Duration& bound = path_.back().bound;
  bound = std::max(bound, bound_of_stages(before));
  if (bound < threshold_) {
    if (is_first) {
      threshold_ = std::min(threshold_, std::max(bound, bound_of_depths()));
    } else {
      go_on(begin, extension.used_after);
    }
  }
  path_.pop_back();
}

/// Goes on from the path to `begin`, or leaves it to be gone on from.
void PathWalk::go_on(CutIndex begin, AllocationClassIndex used) {
  if (begun_ != nullptr) {
    begun_->push_back({.path = path_, .begin = begin, .used = used});
  } else {
    prepend_stages(begin, used);
  }
}

/// Returns the bound from the order of the stages of the path, (O5) of (D7).
Duration PathWalk::bound_of_stages(const BeforePart& before) {
  ordered_.clear();
  for (auto step = path_.rbegin(); step != path_.rend(); ++step) {
    ordered_.append(step->stage, times_of(step->boundary), step->label);
  }
  return bound_of_order(ordered_.list(), before, micro_batches_);
}

/// Returns the least over all depths of the earliest ends of the path's stages, (T4) of (D7).
/// Requires: it covers all layers.
Duration PathWalk::bound_of_depths() {
  Plan plan{.global_batch_size = shared_.problem.global_batch_size,
            .micro_batch_size = shared_.problem.micro_batch_size,
            .num_micro_batches = micro_batches_,
            .warmup_depths = {},
            .stages = std::vector<StagePlan>(path_.size())};
  PlanCost path;
  DepthBox all;
  std::int64_t most = micro_batches_;
  for (auto step = path_.rbegin(); step != path_.rend(); ++step) {
    StageCost& stage = path.stages.emplace_back();
    stage.forward = step->stage.forward;
    stage.backward = step->stage.backward;
    // All that follows the last backward counts as a step.
    stage.optimizer_step = step->stage.after_backward;
    most = std::min(most, step->stage.depth_limit);
    all.most.push_back(most);
    if (step + 1 == path_.rend()) break;
    BoundaryCost& boundary = path.boundaries.emplace_back();
    boundary.forward.emplace_back().time = step->boundary.forward;
    boundary.backward.emplace_back().time = step->boundary.backward;
  }
  all.least.assign(all.most.size(), shared_.problem.gpipe ? micro_batches_ : 1);
  if (!is_possible(all)) return threshold_;
  EarliestStartBound earliest(
      {plan, path, shared_.costs.topology(), {.contention = Contention::Off}});
  std::priority_queue<OpenBox> open;
  const auto push = [&](DepthBox box, Duration parents) {
    if (!is_possible(box) || !spend(1 + earliest.steps() / 4)) return;
    const Duration bound = std::max(parents, earliest.bound(box, nullptr, threshold_));
    if (bound < threshold_) open.push({bound, std::move(box)});
  };
  push(std::move(all), {});
  for (int splits = 0; !open.empty() && splits < kMostSplits; ++splits) {
    const OpenBox best = open.top();
    if (best.box.least == best.box.most) return best.bound;
    open.pop();
    auto [shallow, deep] = split(best.box);
    push(std::move(shallow), best.bound);
    push(std::move(deep), best.bound);
  }
  return open.empty() ? threshold_ : open.top().bound;
}

}  // namespace dapple::search
