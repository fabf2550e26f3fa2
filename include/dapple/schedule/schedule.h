// The order of actions on each device, communication included, and no times. A schedule is data:
// one generator makes it from a plan, the simulator and the executor both interpret it.
//
// Sources: GPipe (NeurIPS'19); DAPPLE (PPoPP'21) section 3, early backward scheduling; text form of
// compute actions as in PyTorch's pipelining schedules ("2F0": stage 2, forward, micro-batch 0).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/index.h"
#include "dapple/plan/action.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// What an action is called in the text form: "F", "SEND_F", "REDUCE_GRAD", "STEP".
std::string_view to_string(ActionKind kind);

/// Streams of a device; first in, first out on each. A receive is on none: it is the moment at
/// which a dependency is met.
enum class Stream : std::uint8_t { Compute, SendForward, SendBackward, Collective, None };
constexpr Stream stream_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
    case ActionKind::Backward:
    case ActionKind::InputGradient:
    case ActionKind::WeightGradient:
    case ActionKind::OptimizerStep:
      return Stream::Compute;
    case ActionKind::SendActivation:
      return Stream::SendForward;
    case ActionKind::SendGradient:
      return Stream::SendBackward;
    case ActionKind::AllReduce:
    case ActionKind::ReduceTied:
      return Stream::Collective;
    case ActionKind::ReceiveActivation:
    case ActionKind::ReceiveGradient:
      return Stream::None;
  }
  throw Bug("an action without a stream");
}

/// "compute", "send_forward", "send_backward", "collective", "none".
std::string_view to_string(Stream stream);

/// Devices that run the same list together: all replicas of a split stage, or one of them where
/// replicas are independent, or one replica of a dealt stage. Where devices hold several stages
/// ("chunks"), the list is of all of them.
struct Lane {
  std::vector<StageIndex> stages;  // ascending, at least one
  std::int32_t replica = 0;        // its first device's
  std::int32_t dealt_to = 1;       // lanes that the stages' micro-batches are dealt to in turn
  SampleRange samples;             // of each of its micro-batches
  std::vector<DeviceIndex> devices;
  std::vector<Action> actions;
};

struct Schedule {
  std::int64_t num_micro_batches = 0;
  std::vector<Lane> lanes;  // by first stage, then replica
};

/// "2F0", "2SEND_F0", "2REDUCE_GRAD1", "2STEP".
std::string to_text(Action action);

/// "2F0 2F1 2B0". O(actions).
std::string to_text(const std::vector<Action>& actions);

/// " 2F0 2F1 2B0", a blank before each action, in the place of what the text held. O(actions).
void write_text(const std::vector<Action>& actions, std::string& text);

/// The whole schedule, one line per device in the order of the lanes: "node0:3: 2RECV_F0 2F0 ...".
/// Canonical: equal schedules have equal text. Its hash is the plan's schedule digest.
std::string to_text(const Schedule& schedule, const Topology& topology);

/// The actions of a text such as "2F0 2F1 2B0", blanks between them. Throws Error(BadInput) with
/// the first word that is none: "expected an action such as 2F0, got \"2X0\"". O(length).
std::vector<Action> parse_actions(std::string_view text);

/// The schedule of a plan. Independent replicas have a lane each, all with the list that they have
/// together, so that the text is the same and what cannot deadlock together cannot apart: a replica
/// waits for a part of what they all wait for. Requires: validate(plan) is empty. O(actions).
Schedule generate(const Plan& plan, Replicas replicas = Replicas::Together);

/// The lanes of generate(plan) without their actions, and the actions of one of them in the place
/// of what it held, for whoever needs one lane at a time. Requires: validate(plan) is empty, and
/// the lane is the one of that number in outline(plan). O(devices); O(actions of the lane).
Schedule outline(const Plan& plan);
void generate_actions(const Plan& plan, std::size_t number, Lane& lane);

/// Per stage the most micro-batches in flight: a forward takes one, a backward's last part gives it
/// back. O(actions).
std::vector<std::int64_t> most_in_flight(const Schedule& schedule, std::size_t stages);

/// In how many parts a stage's parameters are updated: one, or one for each bucket (for all of its
/// own where it has none) and one for those that other stages hold too. O(ties log stages).
std::int32_t optimizer_steps(const Plan& plan, StageIndex stage);

/// Sets the warm-up depths of a plan to what its order has in flight. Requires: the family leaves
/// no choice of depths (all but 1F1B); the rest of the plan is sound. O(actions).
void fill_depths(Plan& plan);

/// Faults of a schedule for that plan, each named, at its stage: a micro-batch that a stage misses
/// or passes twice, a backward before its forward, more in flight than the warm-up depth, sends
/// without their receive, gradients never reduced; and, where all of that holds, a dry run that
/// finds deadlocks and names the actions that wait for each other. O(actions), times log
/// stages of a device. Of independent replicas the schedule in which they run together is asked
/// for.
std::vector<Violation> validate(const Schedule& schedule, const Plan& plan);

}  // namespace dapple
