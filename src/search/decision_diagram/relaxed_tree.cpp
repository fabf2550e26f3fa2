#include "search/decision_diagram/relaxed_tree.h"

#include <algorithm>
#include <queue>
#include <utility>

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

RelaxedTree::RelaxedTree(const CostModel& costs, ClassStages& stages,
                         const PrefixCompletions& completions, const SearchProblem& problem,
                         Duration threshold, Allowance& allowance)
    : costs_(costs),
      stages_(stages),
      completions_(completions),
      problem_(problem),
      micro_batches_(problem.num_micro_batches()),
      end_of_model_{costs.layer_count()},
      threshold_(threshold),
      allowance_(allowance),
      boundaries_(end_of_model_.next().position()) {}

Duration RelaxedTree::search() {
  prepend_stages(end_of_model_, AllocationClasses::kNoDevices);
  return threshold_;
}

ClassStages::Boundaries& RelaxedTree::boundaries(CutIndex cut) {
  std::optional<ClassStages::Boundaries>& known = boundaries_[cut];
  if (!known) known.emplace(stages_, cut);
  return *known;
}

/// Puts every stage that ends at `cut` in front of the path.
void RelaxedTree::prepend_stages(CutIndex cut, AllocationClassIndex used) {
  for (const StageClassIndex devices : stages_.stage_classes()) {
    const auto used_after = stages_.classes().sum(used, stages_.class_of(devices));
    if (!used_after) continue;
    for (const BoundaryKind front : stages_.boundary_kinds()) {
      Step step{.stage = {},
                .boundary = {},
                .label = {},
                .bound = {},
                .devices = devices,
                .front = front};
      ClassStages::SharedServers shared = 0;
      if (!path_.empty()) {
        const Step& behind = path_.back();
        const BoundaryLowerBound& boundary =
            boundaries(cut).between(devices, behind.devices, behind.front);
        if (!boundary) continue;
        step.boundary = *boundary;
        shared = behind.shared;
      }
      step.shared = stages_.shared_with(devices, shared, front);
      const std::int32_t most = stages_.most_on_a_server(devices, shared, front);
      for (const StageForm form : stages_.forms()) {
        const StageColumn* stages = stages_.column(cut, devices, form, most);
        if (stages == nullptr) continue;
        extend(step, {cut, *used_after, *stages, form});
        if (allowance_.is_over()) return;
      }
    }
  }
}

/// Puts the stages of a column in front of the path, one after another, and goes on from each that
/// may belong to a plan below the threshold.
void RelaxedTree::extend(const Step& next, const Extension& extension) {
  const AllocationClassIndex left = stages_.classes().rest(extension.used_after);
  Step step = next;
  for (CutIndex begin = extension.stages.begins_end().previous(); begin >= extension.stages.first;
       begin = begin.previous()) {
    step.stage = extension.stages.at(begin);
    if (step.stage.depth_limit == 0 || step.stage.work(micro_batches_) >= threshold_) continue;
    const std::int64_t stages = std::ssize(path_) + 1;
    if (!allowance_.spend(kStepsOfAPath + stages)) return;
    const bool is_first = begin == CutIndex{};
    if (is_first && step.front == BoundaryKind::Local) continue;
    const PrefixCompletions::PrefixCompletion* front =
        is_first ? nullptr : completions_.at(begin, left);
    if (!is_first && front == nullptr) continue;
    const std::optional<std::int32_t>& pinned = problem_.pins.stages;
    if (pinned && (is_first ? stages != *pinned : stages >= *pinned)) continue;
    if (!problem_.pins.allow(layers_between(begin, extension.cut), stages_.replicas(step.devices),
                             extension.form.recompute)) {
      continue;
    }
    step.label = path_.empty()
                     ? initial_label(step.stage, micro_batches_)
                     : extend_label(step.stage, step.boundary, path_.back().label, micro_batches_);
    step.bound = std::max(step.label.end, path_.empty() ? Duration{} : path_.back().bound);
    if (!is_first) step.bound = std::max(step.bound, completed(front->function, step.label));
    if (step.bound >= threshold_) continue;
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
        prepend_stages(begin, extension.used_after);
      }
    }
    path_.pop_back();
    if (allowance_.is_over()) return;
  }
}

/// Returns the bound from the order of the stages of the path, (O5) of (D7).
Duration RelaxedTree::bound_of_stages(const BeforePart& before) {
  ordered_.clear();
  for (auto step = path_.rbegin(); step != path_.rend(); ++step) {
    ordered_.append(step->stage, times_of(step->boundary), step->label);
  }
  return bound_of_order(ordered_.list(), before, micro_batches_);
}

/// Returns the least over all depths of the earliest ends of the path's stages, (T4) of (D7).
/// Requires: it covers all layers.
Duration RelaxedTree::bound_of_depths() const {
  Plan plan{.global_batch_size = problem_.global_batch_size,
            .micro_batch_size = problem_.micro_batch_size,
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
  all.least.assign(all.most.size(), problem_.gpipe ? micro_batches_ : 1);
  if (!is_possible(all)) return threshold_;
  EarliestStartBound earliest({plan, path, costs_.topology(), {.contention = Contention::Off}});
  std::priority_queue<OpenBox> open;
  const auto push = [&](DepthBox box, Duration parents) {
    if (!is_possible(box) || !allowance_.spend(1 + earliest.steps() / 4)) return;
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
