#include "dry_run.h"

#include <fmt/format.h>

#include <vector>

namespace dapple {
namespace {

std::size_t at(std::int32_t position) {
  return static_cast<std::size_t>(position);
}

/// A send stream: what it sends in order, and how far that is done.
struct SendStream {
  std::vector<std::int32_t> order;     // micro-batches
  std::vector<std::uint8_t> is_ready;  // by the micro-batch's ordinal on the lane
  std::size_t next = 0;
};

struct LaneRun {
  std::vector<Action> computation;
  std::size_t next = 0;
  SendStream activations;
  SendStream gradients;
  std::vector<std::uint8_t> has_activation;  // by the micro-batch's ordinal on the lane
  std::vector<std::uint8_t> has_gradient;
};

class DryRun {
 public:
  DryRun(const Schedule& schedule, const Plan& plan);

  std::string run() &&;

 private:
  LaneRun prepare(const Lane& lane) const;
  void advance(std::size_t lane);
  bool can_start(std::size_t lane, const Action& action) const;
  void release_sends(std::size_t lane, SendStream& sends, bool are_gradients);
  std::size_t lane_count(std::size_t stage) const {
    return first_lane_[stage + 1] - first_lane_[stage];
  }
  std::size_t lane_of(std::size_t stage, std::int32_t micro_batch) const {
    return first_lane_[stage] + at(micro_batch) % lane_count(stage);
  }
  /// Which of its lane's own micro-batches it is.
  std::size_t ordinal_of(std::size_t stage, std::int32_t micro_batch) const {
    return at(micro_batch) / lane_count(stage);
  }
  bool is_last_stage(std::size_t stage) const { return stage + 1 == plan_.stages.size(); }
  std::string waiting_text() const;
  std::string awaited_text(std::size_t lane) const;

  const Schedule& schedule_;
  const Plan& plan_;
  std::vector<LaneRun> lanes_;
  std::vector<std::size_t> first_lane_;      // per stage
  std::vector<std::size_t> lanes_computed_;  // per stage, lanes at their optimizer step
  std::vector<std::size_t> awake_;           // lanes that may be able to go on
};

DryRun::DryRun(const Schedule& schedule, const Plan& plan)
    : schedule_(schedule),
      plan_(plan),
      first_lane_(plan.stages.size() + 1, schedule.lanes.size()),
      lanes_computed_(plan.stages.size()) {
  for (std::size_t i = schedule.lanes.size(); i-- > 0;) {
    first_lane_[schedule.lanes[i].stage.position()] = i;
  }
  lanes_.reserve(schedule.lanes.size());
  for (const Lane& lane : schedule.lanes) lanes_.push_back(prepare(lane));
}

LaneRun DryRun::prepare(const Lane& lane) const {
  const auto micro_batches = static_cast<std::size_t>(micro_batches_of(
      plan_, plan_.stages[lane.stage.position()], static_cast<std::size_t>(lane.replica)));
  const std::uint8_t is_first = lane.stage.value == 0 ? 1 : 0;
  const std::uint8_t is_last = is_last_stage(lane.stage.position()) ? 1 : 0;
  LaneRun run;
  run.has_activation.assign(micro_batches, is_first);
  run.has_gradient.assign(micro_batches, is_last);
  run.activations.is_ready.assign(micro_batches, 0);
  run.gradients.is_ready.assign(micro_batches, 0);
  for (const Action& action : lane.actions) {
    switch (stream_of(action.kind)) {
      case Stream::Compute:
        run.computation.push_back(action);
        break;
      case Stream::SendForward:
        run.activations.order.push_back(action.index);
        break;
      case Stream::SendBackward:
        run.gradients.order.push_back(action.index);
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
  const std::size_t stage = schedule_.lanes[lane].stage.position();
  while (run.next < run.computation.size() && can_start(lane, run.computation[run.next])) {
    const Action action = run.computation[run.next++];
    if (action.kind == ActionKind::Forward) {
      run.activations.is_ready[ordinal_of(stage, action.index)] = 1;
      release_sends(lane, run.activations, false);
    } else if (action.kind == ActionKind::Backward) {
      run.gradients.is_ready[ordinal_of(stage, action.index)] = 1;
      release_sends(lane, run.gradients, true);
    }
    // The step is the last action of a lane, so that this is passed once per lane.
    if (run.next + 1 != run.computation.size()) continue;
    if (++lanes_computed_[stage] < lane_count(stage)) continue;
    for (std::size_t i = first_lane_[stage]; i < first_lane_[stage + 1]; ++i) awake_.push_back(i);
  }
}

bool DryRun::can_start(std::size_t lane, const Action& action) const {
  const std::size_t stage = schedule_.lanes[lane].stage.position();
  switch (action.kind) {
    case ActionKind::Forward:
      return lanes_[lane].has_activation[ordinal_of(stage, action.index)] != 0;
    case ActionKind::Backward:
      return lanes_[lane].has_gradient[ordinal_of(stage, action.index)] != 0;
    default:
      return plan_.stages[stage].gradient_buckets.empty() ||
             lanes_computed_[stage] == lane_count(stage);
  }
}

void DryRun::release_sends(std::size_t lane, SendStream& sends, bool are_gradients) {
  const std::size_t from = schedule_.lanes[lane].stage.position();
  const std::size_t to = are_gradients ? from - 1 : from + 1;
  for (; sends.next < sends.order.size(); ++sends.next) {
    const std::int32_t micro_batch = sends.order[sends.next];
    if (sends.is_ready[ordinal_of(from, micro_batch)] == 0) return;
    const std::size_t receiver = lane_of(to, micro_batch);
    LaneRun& run = lanes_[receiver];
    (are_gradients ? run.has_gradient : run.has_activation)[ordinal_of(to, micro_batch)] = 1;
    // Waking a lane for each arrival is one look at its next action: O(sends) in all.
    awake_.push_back(receiver);
  }
}

std::string DryRun::waiting_text() const {
  std::string text;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    const LaneRun& run = lanes_[lane];
    if (run.next == run.computation.size()) continue;
    const Lane& source = schedule_.lanes[lane];
    const Action action = run.computation[run.next];
    const Action at_action =
        action.kind == ActionKind::OptimizerStep ? Action{ActionKind::AllReduce, 0} : action;
    text +=
        fmt::format("{} {} waits at {} for {}", text.empty() ? "deadlock:" : ";",
                    name_of(source, plan_), to_text(source.stage, at_action), awaited_text(lane));
  }
  return text;
}

std::string DryRun::awaited_text(std::size_t lane) const {
  const LaneRun& run = lanes_[lane];
  const Action action = run.computation[run.next];
  const StageIndex stage = schedule_.lanes[lane].stage;
  if (action.kind == ActionKind::Forward) {
    return to_text(stage.previous(), {ActionKind::SendActivation, action.index});
  }
  if (action.kind == ActionKind::Backward) {
    return to_text(stage.next(), {ActionKind::SendGradient, action.index});
  }
  // A lane of the same stage that is stuck before its last backward: the reduction needs it.
  std::size_t other = first_lane_[stage.position()];
  while (lanes_[other].next + 1 == lanes_[other].computation.size()) ++other;
  const std::vector<Action>& computation = lanes_[other].computation;
  return to_text(stage, computation[computation.size() - 2]);
}

}  // namespace

std::string find_deadlock(const Schedule& schedule, const Plan& plan) {
  return DryRun(schedule, plan).run();
}

std::string name_of(const Lane& lane, const Plan& plan) {
  const StagePlan& stage = plan.stages[lane.stage.position()];
  const bool is_dealt = stage.replication == Replication::Deal && stage.devices.size() > 1;
  if (!is_dealt) return fmt::format("stage {}", lane.stage.value);
  return fmt::format("stage {} replica {}", lane.stage.value, lane.replica);
}

}  // namespace dapple
