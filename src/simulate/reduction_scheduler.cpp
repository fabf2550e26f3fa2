#include "dapple/simulate/reduction_scheduler.h"

#include <algorithm>

namespace dapple::simulate {

ReductionScheduler::ReductionScheduler(const Schedule& schedule, const PlanCost& costs)
    : costs_(costs), stages_(costs.stages.size()) {
  for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
    const Lane& lane = schedule.lanes[i];
    if (i == 0 || lane.stages != schedule.lanes[i - 1].stages) {
      add_group(lane, index_at<LaneIndex>(i));
    }
    ++groups_.back().lanes.count;
  }
  ties_.reserve(costs.ties.size());
  for (const TiedCost& tied : costs.ties) add_tie(tied);
}

/// Adds the group of a lane, whose other lanes have the same reductions.
void ReductionScheduler::add_group(const Lane& lane, LaneIndex index) {
  const GroupIndex group = index_at<GroupIndex>(groups_.size());
  for (const StageIndex stage : lane.stages) {
    Stage& state = stages_[stage.position()];
    state.group = group;
    state.lanes_ready.assign(costs_.stages[stage.position()].buckets.size(), 0);
  }
  Group& state = groups_.emplace_back();
  state.lanes.first = index;
  for (const Action& action : lane.actions) {
    if (!reduces(action.kind)) continue;
    state.reductions.push_back(action);
    if (action.kind == ActionKind::ReduceTied) ++state.ties_left;
  }
}

void ReductionScheduler::add_tie(const TiedCost& tied) {
  Tie& tie = ties_.emplace_back();
  for (const StageIndex index : tied.stages) {
    Stage& stage = stages_[index.position()];
    stage.ties.push_back(ties_.size() - 1);
    tie.contributions_left += lanes_of(stage.group).count;
    tie.groups.push_back(stage.group);
  }
  std::sort(tie.groups.begin(), tie.groups.end());
  tie.groups.erase(std::unique(tie.groups.begin(), tie.groups.end()), tie.groups.end());
}

std::optional<Reduction> ReductionScheduler::bucket_ready(StageIndex stage, std::size_t bucket) {
  Stage& state = stages_[stage.position()];
  ++state.lanes_ready[bucket];
  return start_next(state.group);
}

std::optional<Reduction> ReductionScheduler::gradients_made(StageIndex stage) {
  const Stage& state = stages_[stage.position()];
  if (state.ties.empty()) return std::nullopt;
  for (const std::size_t tie : state.ties) --ties_[tie].contributions_left;
  return start_next(state.group);
}

void ReductionScheduler::finish(const Reduction& reduction) {
  for (const GroupIndex index : groups_of(reduction)) {
    Group& group = groups_[index.position()];
    group.reducing = false;
    if (is_tie(reduction)) --group.ties_left;
  }
  if (!is_tie(reduction)) ++stages_[static_cast<std::size_t>(reduction.reducer)].buckets_done;
}

std::optional<Reduction> ReductionScheduler::start_next(GroupIndex index) {
  const Group& group = groups_[index.position()];
  if (!can_start_next(group)) return std::nullopt;
  const Reduction reduction = next_of(group);
  for (const GroupIndex member : groups_of(reduction)) {
    ++groups_[member.position()].next;
    groups_[member.position()].reducing = true;
  }
  return reduction;
}

bool ReductionScheduler::is_reduced_for(const Action& step) const {
  const Stage& stage = stages_[step.stage.position()];
  const StageCost& cost = costs_.stages[step.stage.position()];
  const auto part = static_cast<std::size_t>(step.index);
  const bool is_by_bucket = !cost.bucket_steps.empty();
  const std::size_t all = cost.buckets.size();
  const std::size_t awaited = is_by_bucket ? std::min(part + 1, all) : all;
  if (stage.buckets_done < awaited) return false;
  const bool needs_ties =
      !is_by_bucket || (cost.has_tied_step() && part + 1 == cost.bucket_steps.size());
  return !needs_ties || groups_[stage.group.position()].ties_left == 0;
}

std::span<const GroupIndex> ReductionScheduler::groups_of(const Reduction& reduction) const {
  if (is_tie(reduction)) return tie_of(reduction).groups;
  return {&stages_[static_cast<std::size_t>(reduction.reducer)].group, 1};
}

Reduction ReductionScheduler::next_of(const Group& group) const {
  const Action& action = group.reductions[group.next];
  if (action.kind != ActionKind::ReduceTied) {
    return {.reducer = action.stage.value, .bucket = action.index};
  }
  return {.reducer = static_cast<std::int32_t>(stages_.size()) + action.index, .bucket = 0};
}

bool ReductionScheduler::can_start_next(const Group& group) const {
  if (group.reducing || group.next == group.reductions.size()) return false;
  const Reduction reduction = next_of(group);
  if (!is_tie(reduction)) {
    const Stage& stage = stages_[static_cast<std::size_t>(reduction.reducer)];
    return stage.lanes_ready[static_cast<std::size_t>(reduction.bucket)] == group.lanes.count;
  }
  const Tie& tie = tie_of(reduction);
  return tie.contributions_left == 0 &&
         std::all_of(tie.groups.begin(), tie.groups.end(), [&](GroupIndex index) {
           const Group& other = groups_[index.position()];
           return !other.reducing && next_of(other) == reduction;
         });
}

}  // namespace dapple::simulate
