#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "dapple/schedule/schedule.h"
#include "schedule/dry_run.h"

namespace dapple {
namespace {

/// The position of an action that has not been found.
constexpr std::int64_t kAbsent = -1;

constexpr std::array kMicroBatchKinds = {
    ActionKind::ReceiveActivation, ActionKind::Forward,      ActionKind::SendActivation,
    ActionKind::ReceiveGradient,   ActionKind::Backward,     ActionKind::InputGradient,
    ActionKind::WeightGradient,    ActionKind::SendGradient,
};
constexpr std::size_t kKinds = 11;

/// Checks what one lane does for one of its stages, independently of other lanes.
class StageValidator {
 public:
  // Positions in the lane, by the micro-batch's ordinal or by bucket.
  using Positions = std::vector<std::int64_t>;

  /// `own` contains the positions in the lane of the stage's actions, ascending.
  StageValidator(const Lane& lane, StageIndex stage, const Positions& own, const Plan& plan,
                 std::vector<Violation>& violations);

  void run();

 private:
  void locate(const Action& action, std::int64_t position);
  void locate_micro_batch(const Action& action, std::int64_t position);
  void set(Positions& positions, std::int64_t entry, const Action& action, std::int64_t position);
  void check_micro_batch(std::int64_t ordinal);
  void check_backward(std::int32_t index);
  void check_presence(const Action& action);
  void check_order(const Action& first, const Action& second, const char* reason);
  void check_in_flight();
  void check_buckets();
  void check_steps();

  const Action& at(std::int64_t position) const {
    return lane_.actions[static_cast<std::size_t>(position)];
  }
  Action action(ActionKind kind, std::int32_t index) const {
    return {.kind = kind, .index = index, .stage = stage_};
  }
  bool belongs(ActionKind kind) const;
  bool is_present(const Action& action) const {
    return belongs(action.kind) && position_of(action) != kAbsent;
  }
  /// Whether the micro-batch's backward is split into two parts.
  bool is_split(std::int32_t index) const {
    return is_present(action(ActionKind::InputGradient, index)) ||
           is_present(action(ActionKind::WeightGradient, index));
  }
  bool is_first() const { return stage_.value == 0; }
  bool is_last() const { return stage_.position() + 1 == plan_.stages.size(); }
  std::string reason_for(const Action& action) const;
  std::string end_text(StageIndex stage, ActionKind kind, std::int32_t index) const {
    return to_text({.kind = kind, .index = index, .stage = stage});
  }
  std::int64_t ordinal_of(std::int32_t micro_batch) const { return micro_batch / dealt_to_; }
  Positions& positions_of(ActionKind kind) { return located_[static_cast<std::size_t>(kind)]; }
  const Positions& positions_of(ActionKind kind) const {
    return located_[static_cast<std::size_t>(kind)];
  }
  std::int64_t position_of(const Action& action) const {
    return positions_of(action.kind)[static_cast<std::size_t>(ordinal_of(action.index))];
  }
  void report(std::string message) {
    violations_.push_back({.place = name_of(lane_, stage_, plan_), .message = std::move(message)});
  }

  const Lane& lane_;
  StageIndex stage_;
  const Positions& own_;
  const Plan& plan_;
  const StagePlan& stage_plan_;
  std::vector<Violation>& violations_;
  // The number of lanes to which micro-batches are dealt in turn.
  std::int32_t dealt_to_ = 1;
  // The number of micro-batches of the lane.
  std::int64_t count_ = 0;
  std::int64_t last_gradient_ = kAbsent;
  // By kind of action.
  std::array<Positions, kKinds> located_;
};

StageValidator::StageValidator(const Lane& lane, StageIndex stage, const Positions& own,
                               const Plan& plan, std::vector<Violation>& violations)
    : lane_(lane),
      stage_(stage),
      own_(own),
      plan_(plan),
      stage_plan_(plan.stages[stage.position()]),
      violations_(violations) {
  if (stage_plan_.replication == Replication::Deal) {
    dealt_to_ = static_cast<std::int32_t>(stage_plan_.devices.size());
  }
  count_ = micro_batches_of(plan, stage_plan_, static_cast<std::size_t>(lane.replica));
  for (const ActionKind kind : kMicroBatchKinds) {
    if (belongs(kind)) positions_of(kind).assign(static_cast<std::size_t>(count_), kAbsent);
  }
  positions_of(ActionKind::AllReduce).assign(stage_plan_.gradient_buckets.size(), kAbsent);
  positions_of(ActionKind::OptimizerStep)
      .assign(static_cast<std::size_t>(optimizer_steps(plan, stage)), kAbsent);
}

void StageValidator::run() {
  for (const std::int64_t position : own_) locate(at(position), position);
  for (std::int64_t ordinal = 0; ordinal < count_; ++ordinal) check_micro_batch(ordinal);
  check_in_flight();
  check_buckets();
  check_steps();
}

bool StageValidator::belongs(ActionKind kind) const {
  switch (kind) {
    case ActionKind::ReceiveActivation:
    case ActionKind::SendGradient:
      return !is_first();
    case ActionKind::SendActivation:
    case ActionKind::ReceiveGradient:
      return !is_last();
    case ActionKind::InputGradient:
    case ActionKind::WeightGradient:
      return may_split_backward(plan_.family);
    default:
      return true;
  }
}

void StageValidator::locate(const Action& action, std::int64_t position) {
  // Tied gradients belong to all of the lane's stages and are checked by check_ties().
  if (action.kind == ActionKind::ReduceTied) return;
  if (action.kind == ActionKind::AllReduce) {
    Positions& buckets = positions_of(action.kind);
    if (action.index < 0 || static_cast<std::size_t>(action.index) >= buckets.size()) {
      report(fmt::format("{} reduces a bucket that is not there: the stage has {}", to_text(action),
                         buckets.size()));
      return;
    }
    set(buckets, action.index, action, position);
  } else if (action.kind == ActionKind::OptimizerStep) {
    Positions& steps = positions_of(action.kind);
    if (action.index < 0 || static_cast<std::size_t>(action.index) >= steps.size()) {
      report(steps.size() == 1
                 ? fmt::format("{} has a number, but there is one step", to_text(action))
                 : fmt::format("{} is of a bucket that is not there: the stage has {}",
                               to_text(action), steps.size()));
      return;
    }
    set(steps, action.index, action, position);
  } else {
    locate_micro_batch(action, position);
  }
}

void StageValidator::locate_micro_batch(const Action& action, std::int64_t position) {
  const bool is_part =
      action.kind == ActionKind::InputGradient || action.kind == ActionKind::WeightGradient;
  if (action.index < 0 || action.index >= plan_.num_micro_batches) {
    report(fmt::format("{} is of a micro-batch that is not there: the plan has {}", to_text(action),
                       plan_.num_micro_batches));
  } else if (action.index % dealt_to_ != lane_.replica) {
    report(fmt::format("{} is of a micro-batch dealt to replica {}", to_text(action),
                       action.index % dealt_to_));
  } else if (is_part && !belongs(action.kind)) {
    report(fmt::format("{} is part of a backward, which {} runs as a whole", to_text(action),
                       to_string(plan_.family)));
  } else if (!belongs(action.kind)) {
    const bool is_before =
        action.kind == ActionKind::ReceiveActivation || action.kind == ActionKind::SendGradient;
    report(fmt::format("{} has nobody at its other end: the stage is the {}", to_text(action),
                       is_before ? "first" : "last"));
  } else {
    if (makes_weight_gradient(action.kind)) last_gradient_ = position;
    set(positions_of(action.kind), ordinal_of(action.index), action, position);
  }
}

void StageValidator::set(Positions& positions, std::int64_t entry, const Action& action,
                         std::int64_t position) {
  std::int64_t& found = positions[static_cast<std::size_t>(entry)];
  if (found != kAbsent) report(fmt::format("{} stands more than once", to_text(action)));
  if (found == kAbsent) found = position;
}

void StageValidator::check_micro_batch(std::int64_t ordinal) {
  const auto index = static_cast<std::int32_t>(lane_.replica + ordinal * dealt_to_);
  const Action forward = action(ActionKind::Forward, index);
  for (const ActionKind kind : {ActionKind::ReceiveActivation, ActionKind::Forward,
                                ActionKind::SendActivation, ActionKind::ReceiveGradient}) {
    check_presence(action(kind, index));
  }
  check_order(action(ActionKind::ReceiveActivation, index), forward, "a forward needs its input");
  check_order(forward, action(ActionKind::SendActivation, index), "there is nothing to send yet");
  check_backward(index);
  check_presence(action(ActionKind::SendGradient, index));
}

void StageValidator::check_backward(std::int32_t index) {
  const Action whole = action(ActionKind::Backward, index);
  const Action input = action(ActionKind::InputGradient, index);
  const Action weights = action(ActionKind::WeightGradient, index);
  const bool split = is_split(index);
  if (split && is_present(whole)) {
    report(fmt::format("{} is listed with its own parts: a backward is run once", to_text(whole)));
  } else if (split) {
    check_presence(input);
    check_presence(weights);
    check_order(input, weights, "the weights' gradient needs what the input's left");
  } else {
    check_presence(whole);
  }
  const Action turn = split ? input : whole;
  check_order(action(ActionKind::Forward, index), turn, "a backward needs what its forward kept");
  check_order(action(ActionKind::ReceiveGradient, index), turn, "a backward needs its gradient");
  check_order(turn, action(ActionKind::SendGradient, index), "there is nothing to send yet");
}

void StageValidator::check_presence(const Action& action) {
  if (!belongs(action.kind) || position_of(action) != kAbsent) return;
  report(fmt::format("{} is missing: {}", to_text(action), reason_for(action)));
}

std::string StageValidator::reason_for(const Action& action) const {
  const std::int32_t index = action.index;
  switch (action.kind) {
    case ActionKind::Forward:
      return fmt::format("micro-batch {} never passes forward", index);
    case ActionKind::Backward:
    case ActionKind::InputGradient:
      return fmt::format("micro-batch {} never passes backward", index);
    case ActionKind::WeightGradient:
      return fmt::format("micro-batch {} adds nothing to the weights' gradients", index);
    case ActionKind::SendActivation:
      return fmt::format("{} waits for it",
                         end_text(stage_.next(), ActionKind::ReceiveActivation, index));
    case ActionKind::SendGradient:
      return fmt::format("{} waits for it",
                         end_text(stage_.previous(), ActionKind::ReceiveGradient, index));
    case ActionKind::ReceiveActivation:
      return fmt::format("nobody takes in {}",
                         end_text(stage_.previous(), ActionKind::SendActivation, index));
    case ActionKind::ReceiveGradient:
      return fmt::format("nobody takes in {}",
                         end_text(stage_.next(), ActionKind::SendGradient, index));
    case ActionKind::AllReduce:
      return fmt::format("the gradients of bucket {} are never reduced", index);
    case ActionKind::ReduceTied:
      return "gradients that other stages hold too are never reduced";
    case ActionKind::OptimizerStep:
      return "the parameters are never updated";
  }
  throw Bug("an action without a purpose");
}

void StageValidator::check_order(const Action& first, const Action& second, const char* reason) {
  if (!is_present(first) || !is_present(second)) return;
  if (position_of(second) > position_of(first)) return;
  report(fmt::format("{} stands before {}: {}", to_text(second), to_text(first), reason));
}

void StageValidator::check_in_flight() {
  const std::int64_t depth = plan_.warmup_depths[stage_.position()];
  std::int64_t in_flight = 0;
  std::int64_t most = 0;
  for (const std::int64_t position : own_) {
    const Action& action = at(position);
    if (makes_weight_gradient(action.kind)) --in_flight;
    if (action.kind != ActionKind::Forward) continue;
    most = std::max(most, ++in_flight);
    if (in_flight <= depth) continue;
    report(fmt::format("{} micro-batches in flight at {}, more than the warm-up depth of {}",
                       in_flight, to_text(action), depth));
    return;
  }
  const bool is_a_limit = plan_.family == ScheduleFamily::OneFOneB ||
                          plan_.family == ScheduleFamily::ListScheduled || dealt_to_ > 1;
  if (is_a_limit || most == depth) return;
  report(
      fmt::format("at most {} micro-batches in flight, but the warm-up depth is {}", most, depth));
}

void StageValidator::check_buckets() {
  const Positions& positions = positions_of(ActionKind::AllReduce);
  std::int64_t last = kAbsent;
  std::int32_t last_bucket = 0;
  for (std::int32_t bucket = 0; static_cast<std::size_t>(bucket) < positions.size(); ++bucket) {
    const Action reduction = action(ActionKind::AllReduce, bucket);
    const std::int64_t position = positions[static_cast<std::size_t>(bucket)];
    if (position == kAbsent) {
      report(fmt::format("{} is missing: {}", to_text(reduction), reason_for(reduction)));
      continue;
    }
    if (position < last_gradient_) {
      const Action& gradient = at(last_gradient_);
      report(fmt::format("{} stands before {}: the last backward adds to all gradients",
                         to_text(reduction), to_text(gradient)));
    }
    if (position < last) {
      report(fmt::format("{} stands before {}: buckets are reduced in their order",
                         to_text(reduction), to_text(action(ActionKind::AllReduce, last_bucket))));
      continue;
    }
    last = position;
    last_bucket = bucket;
  }
}

void StageValidator::check_steps() {
  const Positions& positions = positions_of(ActionKind::OptimizerStep);
  for (std::int32_t k = 0; static_cast<std::size_t>(k) < positions.size(); ++k) {
    const Action step = action(ActionKind::OptimizerStep, k);
    const std::int64_t position = positions[static_cast<std::size_t>(k)];
    if (position == kAbsent) {
      report(fmt::format("{} is missing: {}", to_text(step), reason_for(step)));
      return;
    }
    // Only the steps of the following buckets may come after a step.
    const auto next = std::upper_bound(own_.begin(), own_.end(), position);
    const bool is_last = static_cast<std::size_t>(k) + 1 == positions.size();
    if (next == own_.end() && is_last) continue;
    const bool is_followed = next != own_.end() && at(*next).kind == ActionKind::OptimizerStep &&
                             at(*next).index == k + 1;
    if (is_followed) continue;
    report(next == own_.end()
               ? fmt::format("{} is the last action: step {} comes behind it", to_text(step), k + 1)
               : fmt::format("{} stands before {}: the step is the stage's last action",
                             to_text(step), to_text(at(*next))));
    return;
  }
}

/// Checks the lane's reductions of tied gradients: each occurs once, in their order, after all
/// gradients and buckets of its stages and before the first step.
void check_ties(const Lane& lane, const Plan& plan, std::vector<Violation>& violations) {
  const auto report = [&](std::string message) {
    violations.push_back({.place = name_of(lane, plan), .message = std::move(message)});
  };
  std::vector<Action> expected;
  for (const std::int32_t tie : ties_of(plan, lane.stages)) {
    const TiedGradients& tied = plan.tied_gradients[static_cast<std::size_t>(tie)];
    expected.push_back({ActionKind::ReduceTied, tie, representative_stage(tied, lane.stages)});
  }
  std::size_t found = 0;
  const Action* step = nullptr;  // the first step
  for (const Action& action : lane.actions) {
    if (action.kind == ActionKind::OptimizerStep && step == nullptr) step = &action;
    if (action.kind != ActionKind::ReduceTied) {
      const bool is_late = makes_weight_gradient(action.kind) || reduces(action.kind);
      if (found == 0 || !is_late) continue;
      return report(fmt::format("{} stands before {}: tied gradients come last",
                                to_text(expected[found - 1]), to_text(action)));
    }
    if (found == expected.size()) {
      return report(fmt::format("{} reduces what is not to be reduced here", to_text(action)));
    }
    if (action != expected[found]) {
      return report(fmt::format("expected {}, got {}", to_text(expected[found]), to_text(action)));
    }
    if (step != nullptr) {
      return report(fmt::format("{} stands before {}: a step needs all gradients", to_text(*step),
                                to_text(action)));
    }
    ++found;
  }
  if (found == expected.size()) return;
  report(fmt::format("{} is missing: gradients that other stages hold too are never reduced",
                     to_text(expected[found])));
}

/// Checks each of the lane's stages, and that the lane has no actions of other stages.
void check_lane(const Lane& lane, const Plan& plan, std::vector<Violation>& violations) {
  std::vector<StageValidator::Positions> own(lane.stages.size());
  for (std::size_t i = 0; i < lane.actions.size(); ++i) {
    const Action& action = lane.actions[i];
    const auto stage = std::lower_bound(lane.stages.begin(), lane.stages.end(), action.stage);
    if (stage != lane.stages.end() && *stage == action.stage) {
      own[static_cast<std::size_t>(stage - lane.stages.begin())].push_back(
          static_cast<std::int64_t>(i));
      continue;
    }
    violations.push_back(
        {.place = name_of(lane, plan),
         .message = fmt::format("{} is of a stage that is not on these devices", to_text(action))});
  }
  for (std::size_t chunk = 0; chunk < lane.stages.size(); ++chunk) {
    StageValidator(lane, lane.stages[chunk], own[chunk], plan, violations).run();
  }
  check_ties(lane, plan, violations);
}

/// Returns whether the schedule's lanes are those of the plan; if not, reports the differences.
bool check_lanes(const Schedule& schedule, const Plan& plan, std::vector<Violation>& violations) {
  const std::size_t before = violations.size();
  if (schedule.num_micro_batches != plan.num_micro_batches) {
    violations.push_back({"", fmt::format("expected {} micro-batches, got {}",
                                          plan.num_micro_batches, schedule.num_micro_batches)});
  }
  std::size_t next = 0;
  for (const std::vector<StageIndex>& stages : stages_by_device_group(plan)) {
    const StagePlan& stage = plan.stages[stages.front().position()];
    const bool is_dealt = stage.replication == Replication::Deal;
    const std::size_t lanes = is_dealt ? stage.devices.size() : 1;
    for (std::size_t replica = 0; replica < lanes; ++replica, ++next) {
      if (next >= schedule.lanes.size()) continue;
      const Lane& lane = schedule.lanes[next];
      if (lane.stages != stages || lane.replica != static_cast<std::int32_t>(replica)) {
        violations.push_back(
            {"", fmt::format("lane {}: expected {} replica {}, got {} replica {}", next,
                             name_of(stages), replica, name_of(lane.stages), lane.replica)});
      } else if (lane.devices !=
                 (is_dealt ? std::vector<DeviceIndex>{stage.devices[replica]} : stage.devices)) {
        violations.push_back({"", fmt::format("lane {}: expected the devices of the plan's {}",
                                              next, name_of(stages))});
      }
    }
  }
  if (schedule.lanes.size() != next) {
    violations.push_back(
        {"", fmt::format("expected {} lanes, got {}", next, schedule.lanes.size())});
  }
  return violations.size() == before;
}

}  // namespace

std::vector<Violation> validate(const Schedule& schedule, const Plan& plan) {
  std::vector<Violation> violations;
  if (!check_lanes(schedule, plan, violations)) return violations;
  for (const Lane& lane : schedule.lanes) check_lane(lane, plan, violations);
  if (!violations.empty()) return violations;
  const std::string deadlock = find_deadlock(schedule, plan);
  if (!deadlock.empty()) violations.push_back({"", deadlock});
  return violations;
}

}  // namespace dapple
