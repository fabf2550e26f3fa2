#include <fmt/format.h>

#include <array>
#include <utility>

#include "dapple/schedule/schedule.h"
#include "dry_run.h"

namespace dapple {
namespace {

/// Position of an action that has not been met.
constexpr std::int64_t kAbsent = -1;

constexpr std::array kMicroBatchKinds = {ActionKind::ReceiveActivation, ActionKind::Forward,
                                         ActionKind::SendActivation,    ActionKind::ReceiveGradient,
                                         ActionKind::Backward,          ActionKind::SendGradient};

/// What one stage does, checked lane by lane, without regard to what the others do when.
class LaneValidator {
 public:
  LaneValidator(const Lane& lane, const Plan& plan, std::vector<Violation>& violations);

  void run();

 private:
  using Positions = std::vector<std::int64_t>;  // in the lane, by micro-batch's ordinal or bucket

  void locate(const Action& action, std::int64_t position);
  void locate_micro_batch(const Action& action, std::int64_t position);
  void set(Positions& positions, std::int64_t entry, const Action& action, std::int64_t position);
  void check_micro_batch(std::int64_t ordinal);
  void check_presence(const Action& action);
  void check_order(const Action& first, const Action& second, const char* reason);
  void check_in_flight();
  void check_buckets();
  void check_step();

  bool belongs(ActionKind kind) const;
  std::string reason_for(const Action& action) const;
  std::int64_t ordinal_of(std::int32_t micro_batch) const { return micro_batch / dealt_to_; }
  std::int64_t position_of(const Action& action) const {
    return located_[static_cast<std::size_t>(action.kind)]
                   [static_cast<std::size_t>(ordinal_of(action.index))];
  }
  std::string text(const Action& action) const { return to_text(lane_.stage, action); }
  std::string text(std::int32_t stage, const Action& action) const {
    return to_text(StageIndex{stage}, action);
  }
  void report(std::string message) {
    violations_.push_back({.place = name_of(lane_, plan_), .message = std::move(message)});
  }

  const Lane& lane_;
  const Plan& plan_;
  const StagePlan& stage_;
  std::vector<Violation>& violations_;
  std::int32_t dealt_to_ = 1;  // lanes that take micro-batches in turn
  std::int64_t count_ = 0;     // of the lane's own micro-batches
  std::int64_t last_backward_ = kAbsent;
  std::array<Positions, 8> located_;  // by kind
};

LaneValidator::LaneValidator(const Lane& lane, const Plan& plan, std::vector<Violation>& violations)
    : lane_(lane),
      plan_(plan),
      stage_(plan.stages[lane.stage.position()]),
      violations_(violations) {
  if (stage_.replication == Replication::Deal) {
    dealt_to_ = static_cast<std::int32_t>(stage_.devices.size());
  }
  count_ = micro_batches_of(plan, stage_, static_cast<std::size_t>(lane.replica));
  for (const ActionKind kind : kMicroBatchKinds) {
    if (!belongs(kind)) continue;
    located_[static_cast<std::size_t>(kind)].assign(static_cast<std::size_t>(count_), kAbsent);
  }
  located_[static_cast<std::size_t>(ActionKind::AllReduce)].assign(stage_.gradient_buckets.size(),
                                                                   kAbsent);
  located_[static_cast<std::size_t>(ActionKind::OptimizerStep)].assign(1, kAbsent);
}

void LaneValidator::run() {
  for (std::size_t i = 0; i < lane_.actions.size(); ++i) {
    locate(lane_.actions[i], static_cast<std::int64_t>(i));
  }
  for (std::int64_t ordinal = 0; ordinal < count_; ++ordinal) check_micro_batch(ordinal);
  check_in_flight();
  check_buckets();
  check_step();
}

bool LaneValidator::belongs(ActionKind kind) const {
  const bool is_first = lane_.stage.value == 0;
  const bool is_last = lane_.stage.position() + 1 == plan_.stages.size();
  switch (kind) {
    case ActionKind::ReceiveActivation:
    case ActionKind::SendGradient:
      return !is_first;
    case ActionKind::SendActivation:
    case ActionKind::ReceiveGradient:
      return !is_last;
    default:
      return true;
  }
}

void LaneValidator::locate(const Action& action, std::int64_t position) {
  if (action.kind == ActionKind::AllReduce) {
    Positions& buckets = located_[static_cast<std::size_t>(action.kind)];
    if (action.index < 0 || static_cast<std::size_t>(action.index) >= buckets.size()) {
      report(fmt::format("{} reduces a bucket that is not there: the stage has {}", text(action),
                         buckets.size()));
      return;
    }
    set(buckets, action.index, action, position);
  } else if (action.kind == ActionKind::OptimizerStep) {
    if (action.index != 0) {
      report(fmt::format("{} has a number, but there is one step", text(action)));
      return;
    }
    set(located_[static_cast<std::size_t>(action.kind)], 0, action, position);
  } else {
    locate_micro_batch(action, position);
  }
}

void LaneValidator::locate_micro_batch(const Action& action, std::int64_t position) {
  if (action.index < 0 || action.index >= plan_.num_micro_batches) {
    report(fmt::format("{} is of a micro-batch that is not there: the plan has {}", text(action),
                       plan_.num_micro_batches));
  } else if (action.index % dealt_to_ != lane_.replica) {
    report(fmt::format("{} is of a micro-batch dealt to replica {}", text(action),
                       action.index % dealt_to_));
  } else if (!belongs(action.kind)) {
    const bool is_first = lane_.stage.value == 0;
    report(fmt::format("{} has nobody at its other end: the stage is the {}", text(action),
                       is_first && (action.kind == ActionKind::ReceiveActivation ||
                                    action.kind == ActionKind::SendGradient)
                           ? "first"
                           : "last"));
  } else {
    if (action.kind == ActionKind::Backward) last_backward_ = position;
    set(located_[static_cast<std::size_t>(action.kind)], ordinal_of(action.index), action,
        position);
  }
}

void LaneValidator::set(Positions& positions, std::int64_t entry, const Action& action,
                        std::int64_t position) {
  std::int64_t& found = positions[static_cast<std::size_t>(entry)];
  if (found != kAbsent) report(fmt::format("{} stands more than once", text(action)));
  if (found == kAbsent) found = position;
}

void LaneValidator::check_micro_batch(std::int64_t ordinal) {
  const auto index = static_cast<std::int32_t>(lane_.replica + ordinal * dealt_to_);
  for (const ActionKind kind : kMicroBatchKinds) check_presence({kind, index});
  const Action forward{ActionKind::Forward, index};
  const Action backward{ActionKind::Backward, index};
  check_order(forward, backward, "a backward needs what its forward kept");
  check_order({ActionKind::ReceiveActivation, index}, forward, "a forward needs its input");
  check_order({ActionKind::ReceiveGradient, index}, backward, "a backward needs its gradient");
  check_order(forward, {ActionKind::SendActivation, index}, "there is nothing to send yet");
  check_order(backward, {ActionKind::SendGradient, index}, "there is nothing to send yet");
}

void LaneValidator::check_presence(const Action& action) {
  if (!belongs(action.kind) || position_of(action) != kAbsent) return;
  report(fmt::format("{} is missing: {}", text(action), reason_for(action)));
}

std::string LaneValidator::reason_for(const Action& action) const {
  const std::int32_t stage = lane_.stage.value;
  const std::int32_t index = action.index;
  switch (action.kind) {
    case ActionKind::Forward:
      return fmt::format("micro-batch {} never passes forward", index);
    case ActionKind::Backward:
      return fmt::format("micro-batch {} never passes backward", index);
    case ActionKind::SendActivation:
      return fmt::format("{} waits for it",
                         text(stage + 1, {ActionKind::ReceiveActivation, index}));
    case ActionKind::SendGradient:
      return fmt::format("{} waits for it", text(stage - 1, {ActionKind::ReceiveGradient, index}));
    case ActionKind::ReceiveActivation:
      return fmt::format("nobody takes in {}",
                         text(stage - 1, {ActionKind::SendActivation, index}));
    case ActionKind::ReceiveGradient:
      return fmt::format("nobody takes in {}", text(stage + 1, {ActionKind::SendGradient, index}));
    case ActionKind::AllReduce:
      return fmt::format("the gradients of bucket {} are never reduced", index);
    case ActionKind::OptimizerStep:
      return "the parameters are never updated";
  }
  throw Bug("an action without a purpose");
}

void LaneValidator::check_order(const Action& first, const Action& second, const char* reason) {
  if (!belongs(first.kind) || !belongs(second.kind)) return;
  const std::int64_t first_position = position_of(first);
  const std::int64_t second_position = position_of(second);
  if (first_position == kAbsent || second_position == kAbsent) return;
  if (second_position > first_position) return;
  report(fmt::format("{} stands before {}: {}", text(second), text(first), reason));
}

void LaneValidator::check_in_flight() {
  const std::int64_t depth = plan_.warmup_depths[lane_.stage.position()];
  std::int64_t in_flight = 0;
  for (const Action& action : lane_.actions) {
    if (action.kind == ActionKind::Backward) --in_flight;
    if (action.kind != ActionKind::Forward || ++in_flight <= depth) continue;
    report(fmt::format("{} micro-batches in flight at {}, more than the warm-up depth of {}",
                       in_flight, text(action), depth));
    return;
  }
}

void LaneValidator::check_buckets() {
  const Positions& positions = located_[static_cast<std::size_t>(ActionKind::AllReduce)];
  std::int64_t last = kAbsent;
  std::int32_t last_bucket = 0;
  for (std::int32_t bucket = 0; static_cast<std::size_t>(bucket) < positions.size(); ++bucket) {
    const Action reduction{ActionKind::AllReduce, bucket};
    const std::int64_t position = positions[static_cast<std::size_t>(bucket)];
    if (position == kAbsent) {
      report(fmt::format("{} is missing: {}", text(reduction), reason_for(reduction)));
      continue;
    }
    if (position < last_backward_) {
      const Action backward = lane_.actions[static_cast<std::size_t>(last_backward_)];
      report(fmt::format("{} stands before {}: the last backward adds to all gradients",
                         text(reduction), text(backward)));
    }
    if (position < last) {
      report(fmt::format("{} stands before {}: buckets are reduced in their order", text(reduction),
                         text({ActionKind::AllReduce, last_bucket})));
      continue;
    }
    last = position;
    last_bucket = bucket;
  }
}

void LaneValidator::check_step() {
  const Action step{ActionKind::OptimizerStep, 0};
  const std::int64_t position = located_[static_cast<std::size_t>(step.kind)].front();
  if (position == kAbsent) {
    report(fmt::format("{} is missing: {}", text(step), reason_for(step)));
  } else if (static_cast<std::size_t>(position) + 1 != lane_.actions.size()) {
    report(fmt::format("{} stands before {}: the step is the last action", text(step),
                       text(lane_.actions[static_cast<std::size_t>(position) + 1])));
  }
}

/// Whether the schedule's lanes are those of the plan; if not, says how.
bool check_lanes(const Schedule& schedule, const Plan& plan, std::vector<Violation>& violations) {
  const std::size_t before = violations.size();
  if (schedule.num_micro_batches != plan.num_micro_batches) {
    violations.push_back({"", fmt::format("expected {} micro-batches, got {}",
                                          plan.num_micro_batches, schedule.num_micro_batches)});
  }
  std::size_t next = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    const bool is_dealt = stage.replication == Replication::Deal;
    const std::size_t lanes = is_dealt ? stage.devices.size() : 1;
    for (std::size_t replica = 0; replica < lanes; ++replica, ++next) {
      if (next >= schedule.lanes.size()) continue;
      const Lane& lane = schedule.lanes[next];
      if (lane.stage != index_at<StageIndex>(s) ||
          lane.replica != static_cast<std::int32_t>(replica)) {
        violations.push_back(
            {"", fmt::format("lane {}: expected stage {} replica {}, got stage {} replica {}", next,
                             s, replica, lane.stage.value, lane.replica)});
      } else if (lane.devices !=
                 (is_dealt ? std::vector<DeviceIndex>{stage.devices[replica]} : stage.devices)) {
        violations.push_back(
            {"", fmt::format("lane {}: expected the devices of the plan's stage {}", next, s)});
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
  for (const Lane& lane : schedule.lanes) LaneValidator(lane, plan, violations).run();
  if (!violations.empty()) return violations;
  const std::string deadlock = find_deadlock(schedule, plan);
  if (!deadlock.empty()) violations.push_back({"", deadlock});
  return violations;
}

}  // namespace dapple
