#include "search/decision_diagram/prefix_completions.h"

#include <algorithm>

namespace dapple::search {

PrefixCompletions::PrefixCompletions(const CostModel& costs, ClassStages& stages,
                                     const SearchProblem& problem, Duration threshold,
                                     Allowance& allowance)
    : stages_(stages),
      problem_(problem),
      micro_batches_(problem.num_micro_batches()),
      end_of_model_{costs.layer_count()},
      threshold_(threshold),
      allowance_(allowance),
      work_(stages.work()),
      least_samples_(stages.classes().size()),
      least_(threshold),
      positions_(static_cast<std::size_t>(costs.layer_count()) + 1) {
  for (const AllocationClassIndex devices : stages_.classes().not_empty()) {
    const std::int64_t most =
        std::min<std::int64_t>(stages_.classes().replicas(devices), problem.micro_batch_size);
    least_samples_[devices] = divide_up(problem.micro_batch_size, most);
  }
  for (CutIndex cut; cut < end_of_model_ && !allowance_.is_over(); cut = cut.next()) {
    ClassStages::Boundaries boundaries(stages_, cut);
    stages_here_.clear();
    stages_here_.resize(stages_.stage_class_count());
    if (cut == CutIndex{}) {
      extend(cut, AllocationClasses::kNoDevices, boundaries);
      continue;
    }
    if (positions_[cut].empty()) continue;
    for (const AllocationClassIndex used : stages_.classes().not_empty()) {
      if (positions_[cut][used] >= 0) extend(cut, used, boundaries);
    }
    leave_idle(cut);
  }
  stages_here_.clear();
  if (!allowance_.is_over()) return;
  positions_.clear();
  functions_.clear();
}

PrefixCompletions::State* PrefixCompletions::state(CutIndex cut, AllocationClassIndex devices) {
  const std::int32_t position = positions_[cut].empty() ? -1 : positions_[cut][devices];
  return position < 0 ? nullptr : &functions_[static_cast<std::size_t>(position)];
}

/// Adds a function to a state, which keeps the component-wise minimum of all (C6).
void PrefixCompletions::merge(CutIndex cut, AllocationClassIndex devices, const State& other) {
  if (State* known = state(cut, devices)) {
    known->function = componentwise_minimum(known->function, other.function);
    known->depth_limit = std::max(known->depth_limit, other.depth_limit);
    if (stages_.is_no_slower_beside(known->last_stage, other.last_stage)) return;
    known->last_stage = stages_.is_no_slower_beside(other.last_stage, known->last_stage)
                            ? other.last_stage
                            : kAnyStageClass;
    return;
  }
  if (positions_[cut].empty()) {
    positions_[cut].resize(stages_.classes().size(), -1);
    allowance_.keep({static_cast<std::int64_t>(stages_.classes().size() * sizeof(std::int32_t))});
  }
  positions_[cut][devices] = static_cast<std::int32_t>(functions_.size());
  functions_.push_back(other);
  allowance_.keep({sizeof(State)});
}

/// Puts every stage that begins at `cut` behind the function of a state.
void PrefixCompletions::extend(CutIndex cut, AllocationClassIndex used,
                               ClassStages::Boundaries& boundaries) {
  for (const StageClassIndex devices : stages_.stage_classes()) {
    const auto used_after = stages_.classes().sum(used, stages_.class_of(devices));
    if (!used_after) continue;
    CompletionFunction function;
    std::int64_t depth_limit = micro_batches_;
    if (cut > CutIndex{}) {
      const State& front = *state(cut, used);
      const BoundaryLowerBound& boundary =
          boundaries.between(front.last_stage, devices, BoundaryKind::Any);
      if (!boundary) continue;
      function = with_boundary(front.function, *boundary);
      depth_limit = front.depth_limit;
    }
    append_stages(function, depth_limit,
                  {.cut = cut, .devices = devices, .used_after = *used_after});
    if (allowance_.is_over()) return;
  }
}

/// Returns the stages that begin at `cut` on devices of a class, by rising end. Left out are those
/// that reach the threshold by their work (B1), or leave too much of it to all other devices (P1).
const std::vector<PrefixCompletions::Stage>& PrefixCompletions::stages_from(const Extension& of) {
  std::optional<std::vector<Stage>>& known = stages_here_[of.devices];
  if (known) return *known;
  known.emplace();
  for (CutIndex end = of.cut.next(); end <= end_of_model_; end = end.next()) {
    const ClassStages::Begins begins = stages_.begins(end, of.devices);
    if (of.cut < begins.first || !allowance_.spend(std::ssize(stages_.forms()))) return *known;
    if (of.cut > begins.last || !stages_.is_allowed(end)) continue;
    const StageOptions* stages = stages_.options(end, of.devices);
    if (stages == nullptr) continue;
    for (const StageOption& stage : stages->at(of.cut)) {
      if (stage.figures.work(micro_batches_) >= threshold_) continue;
      const LayerRange layers = layers_between(of.cut, end);
      if (!problem_.pins.allow(layers, stages_.replicas(of.devices), stage.form.recompute)) {
        continue;
      }
      known->push_back({.end = end, .figures = stage.figures});
    }
  }
  return *known;
}

/// Appends the stages of `extension`, for every last layer. Those that leave more work behind than
/// the devices left have time for (P1), or reach the threshold with the least label behind (C1),
/// are left out.
void PrefixCompletions::append_stages(const CompletionFunction& function, std::int64_t depth_limit,
                                      const Extension& extension) {
  const AllocationClassIndex devices_left = stages_.classes().rest(extension.used_after);
  const double left = stages_.capacity(devices_left);
  const std::vector<Stage>& stages = stages_from(extension);
  if (!allowance_.spend(std::ssize(stages))) return;
  // The longer a stage is, the less work is behind it.
  const auto first = std::partition_point(stages.begin(), stages.end(), [&](const Stage& stage) {
    return stage.end < end_of_model_ &&
           (left <= 0 ||
            work_.busiest(layers_between(stage.end, end_of_model_), left) >= threshold_);
  });
  for (auto stage = first; stage != stages.end(); ++stage) {
    const CompletionFunction grown = with_stage(
        function, stage->figures, {.num_micro_batches = micro_batches_, .is_for_merging = true});
    if (grown.own >= threshold_) continue;
    if (stage->end == end_of_model_) {
      least_ = std::min(least_, grown.own);
      continue;
    }
    if (completed(grown, least_label(stage->end, devices_left)) >= threshold_) continue;
    merge(stage->end, extension.used_after,
          {.function = grown,
           .last_stage = extension.devices,
           .depth_limit = std::min(depth_limit, stage->figures.depth_limit)});
  }
}

/// Returns lower bounds on the label of the layers behind `cut` on these devices, whatever their
/// stages: no replica has fewer samples than with all devices in one stage, and some device is busy
/// for the average (P1).
BoundLabel PrefixCompletions::least_label(CutIndex cut, AllocationClassIndex devices) const {
  const LayerRange layers = layers_between(cut, end_of_model_);
  BoundLabel label;
  label.round_trip = work_.round_trip(layers, least_samples_[devices]);
  label.last_trip = label.round_trip;
  label.tail = label.round_trip;
  label.span = std::max(label.round_trip, work_.busiest(layers, stages_.capacity(devices)));
  label.end = label.span;
  label.occupied = label.span;
  return label;
}

/// Leaves devices idle: the function of a state also counts where more devices are in use.
void PrefixCompletions::leave_idle(CutIndex cut) {
  const AllocationClasses& classes = stages_.classes();
  for (const AllocationClassIndex devices : classes.all()) {
    if (!allowance_.spend(1)) return;
    const State* here = state(cut, devices);
    if (here == nullptr) continue;
    // A copy, because functions are added while it is in use.
    const State idle = *here;
    for (const AllocationClassIndex more : classes.with_one_more(devices)) merge(cut, more, idle);
  }
}

}  // namespace dapple::search
