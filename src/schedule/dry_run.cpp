#include "schedule/dry_run.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "dapple/core/indexed_vector.h"

namespace dapple {
namespace {

std::size_t at(std::int32_t position) {
  return static_cast<std::size_t>(position);
}

/// A send stream: the order of its sends, and how many of them have been released.
struct SendStream {
  // The micro-batches in the order in which they are sent.
  std::vector<std::int32_t> order;
  // By the micro-batch's ordinal on the lane.
  std::vector<std::uint8_t> is_ready;
  std::size_t next = 0;
};

/// The progress of a lane on one of its stages.
struct StageRun {
  SendStream activations;
  SendStream gradients;
  // By the micro-batch's ordinal on the lane.
  std::vector<std::uint8_t> has_activation;
  std::vector<std::uint8_t> has_gradient;
  // The number of micro-batches whose weight gradients are still to be computed.
  std::size_t gradients_left = 0;
};

struct LaneRun {
  std::vector<Action> computation;
  std::size_t next = 0;
  std::vector<StageRun> stages;
};

class DryRun {
 public:
  DryRun(const Schedule& schedule, const Plan& plan);

  std::string run() &&;

 private:
  LaneRun prepare(const Lane& lane) const;
  void advance(std::size_t lane);
  void finish(std::size_t lane, const Action& action);
  bool can_start(std::size_t lane, const Action& action) const;
  void release_sends(std::size_t lane, StageIndex stage, bool are_gradients);
  std::size_t lane_of(StageIndex stage, std::int32_t micro_batch) const {
    return first_lane_[stage] + at(micro_batch) % lane_count_[stage];
  }
  /// Returns the ordinal of a micro-batch among those of its lane.
  std::size_t ordinal_of(StageIndex stage, std::int32_t micro_batch) const {
    return at(micro_batch) / lane_count_[stage];
  }
  const StageRun& run_of(std::size_t lane, StageIndex stage) const {
    return lanes_[lane].stages[chunk_[stage]];
  }
  StageRun& run_of(std::size_t lane, StageIndex stage) {
    return lanes_[lane].stages[chunk_[stage]];
  }
  bool has_all_gradients(StageIndex stage) const {
    return lanes_computed_[stage] == lane_count_[stage];
  }
  /// Returns the first stage whose gradients are still to be computed, among the stages whose
  /// gradients are reduced together with those of `stage` on the lane.
  std::optional<StageIndex> awaited_gradients(std::size_t lane, StageIndex stage) const;
  bool is_last_stage(StageIndex stage) const { return stage.position() + 1 == plan_.stages.size(); }
  std::string waiting_text() const;
  std::string awaited_text(std::size_t lane) const;

  const Schedule& schedule_;
  const Plan& plan_;
  std::vector<LaneRun> lanes_;
  IndexedVector<StageIndex, std::size_t> first_lane_;
  IndexedVector<StageIndex, std::size_t> lane_count_;
  // The position of a stage among the stages of its lanes.
  IndexedVector<StageIndex, std::size_t> chunk_;
  // The number of lanes that have computed all gradients of a stage.
  IndexedVector<StageIndex, std::size_t> lanes_computed_;
  // The stages whose reductions include the gradients of a stage: itself, and all stages with which
  // it shares tied parameters.
  IndexedVector<StageIndex, std::vector<StageIndex>> reduced_with_;
  // The lanes that may be able to continue.
  std::vector<std::size_t> awake_;
};

DryRun::DryRun(const Schedule& schedule, const Plan& plan)
    : schedule_(schedule),
      plan_(plan),
      first_lane_(plan.stages.size()),
      lane_count_(plan.stages.size()),
      chunk_(plan.stages.size()),
      lanes_computed_(plan.stages.size()),
      reduced_with_(plan.stages.size()) {
  for (const StageIndex stage : reduced_with_.indices()) reduced_with_[stage].push_back(stage);
  for (const TiedGradients& tied : plan.tied_gradients) {
    for (const StageIndex stage : tied.stages) {
      std::vector<StageIndex>& others = reduced_with_[stage];
      others.insert(others.end(), tied.stages.begin(), tied.stages.end());
    }
  }
  for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
    const std::vector<StageIndex>& stages = schedule.lanes[lane].stages;
    for (std::size_t chunk = 0; chunk < stages.size(); ++chunk) {
      const StageIndex stage = stages[chunk];
      if (lane_count_[stage]++ == 0) first_lane_[stage] = lane;
      chunk_[stage] = chunk;
    }
  }
  lanes_.reserve(schedule.lanes.size());
  for (const Lane& lane : schedule.lanes) lanes_.push_back(prepare(lane));
}

LaneRun DryRun::prepare(const Lane& lane) const {
  LaneRun run;
  for (const StageIndex stage : lane.stages) {
    const auto micro_batches = static_cast<std::size_t>(micro_batches_of(
        plan_, plan_.stages[stage.position()], static_cast<std::size_t>(lane.replica)));
    StageRun& stage_run = run.stages.emplace_back();
    stage_run.has_activation.assign(micro_batches, stage.value == 0 ? 1 : 0);
    stage_run.has_gradient.assign(micro_batches, is_last_stage(stage) ? 1 : 0);
    stage_run.activations.is_ready.assign(micro_batches, 0);
    stage_run.gradients.is_ready.assign(micro_batches, 0);
    stage_run.gradients_left = micro_batches;
  }
  for (const Action& action : lane.actions) {
    StageRun& stage_run = run.stages[chunk_[action.stage]];
    switch (stream_of(action.kind)) {
      case Stream::Compute:
        run.computation.push_back(action);
        break;
      case Stream::SendForward:
        stage_run.activations.order.push_back(action.index);
        break;
      case Stream::SendBackward:
        stage_run.gradients.order.push_back(action.index);
        break;
      case Stream::Collective:
      case Stream::None:
        break;
    }
  }
  return run;
}

std::string DryRun::run() && {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) awake_.push_back(lane);
  while (!awake_.empty()) {
    const std::size_t lane = awake_.back();
    awake_.pop_back();
    advance(lane);
  }
  return waiting_text();
}

void DryRun::advance(std::size_t lane) {
  LaneRun& run = lanes_[lane];
  while (run.next < run.computation.size() && can_start(lane, run.computation[run.next])) {
    finish(lane, run.computation[run.next++]);
  }
}

void DryRun::finish(std::size_t lane, const Action& action) {
  StageRun& run = run_of(lane, action.stage);
  if (action.kind == ActionKind::OptimizerStep) return;
  const std::size_t ordinal = ordinal_of(action.stage, action.index);
  if (action.kind == ActionKind::Forward) {
    run.activations.is_ready[ordinal] = 1;
    release_sends(lane, action.stage, false);
  } else if (makes_input_gradient(action.kind)) {
    run.gradients.is_ready[ordinal] = 1;
    release_sends(lane, action.stage, true);
  }
  if (!makes_weight_gradient(action.kind) || --run.gradients_left > 0) return;
  ++lanes_computed_[action.stage];
  if (!has_all_gradients(action.stage)) return;
  for (const StageIndex other : reduced_with_[action.stage]) {
    const std::size_t first = first_lane_[other];
    for (std::size_t i = 0; i < lane_count_[other]; ++i) awake_.push_back(first + i);
  }
}

std::optional<StageIndex> DryRun::awaited_gradients(std::size_t lane, StageIndex stage) const {
  if (!plan_.stages[stage.position()].gradient_buckets.empty() && !has_all_gradients(stage)) {
    return stage;
  }
  for (const std::int32_t tie : ties_of(plan_, schedule_.lanes[lane].stages)) {
    for (const StageIndex owner : plan_.tied_gradients[at(tie)].stages) {
      if (!has_all_gradients(owner)) return owner;
    }
  }
  return std::nullopt;
}

bool DryRun::can_start(std::size_t lane, const Action& action) const {
  switch (action.kind) {
    case ActionKind::Forward:
      return run_of(lane, action.stage).has_activation[ordinal_of(action.stage, action.index)] != 0;
    case ActionKind::Backward:
    case ActionKind::InputGradient:
      return run_of(lane, action.stage).has_gradient[ordinal_of(action.stage, action.index)] != 0;
    case ActionKind::WeightGradient:
      return true;
    default:
      return !awaited_gradients(lane, action.stage);
  }
}

void DryRun::release_sends(std::size_t lane, StageIndex stage, bool are_gradients) {
  const StageIndex to = are_gradients ? stage.previous() : stage.next();
  StageRun& from_run = run_of(lane, stage);
  SendStream& sends = are_gradients ? from_run.gradients : from_run.activations;
  for (; sends.next < sends.order.size(); ++sends.next) {
    const std::int32_t micro_batch = sends.order[sends.next];
    if (sends.is_ready[ordinal_of(stage, micro_batch)] == 0) return;
    const std::size_t receiver = lane_of(to, micro_batch);
    StageRun& run = run_of(receiver, to);
    (are_gradients ? run.has_gradient : run.has_activation)[ordinal_of(to, micro_batch)] = 1;
    // Each arrival wakes the lane, which only checks its next action: O(sends) in total.
    awake_.push_back(receiver);
  }
}

std::string DryRun::waiting_text() const {
  std::string text;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    const LaneRun& run = lanes_[lane];
    if (run.next == run.computation.size()) continue;
    Action action = run.computation[run.next];
    if (action.kind == ActionKind::OptimizerStep) action.kind = ActionKind::AllReduce;
    const Lane& source = schedule_.lanes[lane];
    text += fmt::format("{} {} {} at {} for {}", text.empty() ? "deadlock:" : ";",
                        name_of(source, plan_), source.stages.size() == 1 ? "waits" : "wait",
                        to_text(action), awaited_text(lane));
  }
  return text;
}

std::string DryRun::awaited_text(std::size_t lane) const {
  const LaneRun& run = lanes_[lane];
  const Action action = run.computation[run.next];
  if (action.kind == ActionKind::Forward) {
    return to_text({ActionKind::SendActivation, action.index, action.stage.previous()});
  }
  if (action.kind != ActionKind::OptimizerStep) {
    return to_text({ActionKind::SendGradient, action.index, action.stage.next()});
  }
  // The reduction waits for a lane that is stuck before its last gradients.
  const StageIndex stage = awaited_gradients(lane, action.stage).value();
  std::size_t other = first_lane_[stage];
  while (run_of(other, stage).gradients_left == 0) ++other;
  const std::vector<Action>& computation = lanes_[other].computation;
  Action last = action;
  for (const Action& candidate : computation) {
    if (candidate.stage == stage && makes_weight_gradient(candidate.kind)) last = candidate;
  }
  return to_text(last);
}

}  // namespace

std::string find_deadlock(const Schedule& schedule, const Plan& plan) {
  return DryRun(schedule, plan).run();
}

std::string name_of(const std::vector<StageIndex>& stages) {
  std::string text = stages.size() == 1 ? "stage " : "stages ";
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const char* separator = i == 0 ? "" : i + 1 == stages.size() ? " and " : ", ";
    text += fmt::format("{}{}", separator, stages[i].value);
  }
  return text;
}

std::string name_of(const Lane& lane, const Plan& plan) {
  if (lane.stages.size() == 1) return name_of(lane, lane.stages.front(), plan);
  return name_of(lane.stages);
}

std::string name_of(const Lane& lane, StageIndex stage, const Plan& plan) {
  const StagePlan& source = plan.stages[stage.position()];
  const bool is_dealt = source.replication == Replication::Deal && source.devices.size() > 1;
  if (!is_dealt) return fmt::format("stage {}", stage.value);
  return fmt::format("stage {} replica {}", stage.value, lane.replica);
}

}  // namespace dapple
