// The order of actions on each device, communication included, without times. A schedule is plain
// data: one generator makes it from a plan, and both the simulator and the executor interpret it.
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

/// Returns the name of a kind of action in the text form: "F", "SEND_F", "REDUCE_GRAD", "STEP".
std::string_view to_string(ActionKind kind);

/// The streams of a device; each is first in, first out. A receive belongs to no stream: it is the
/// moment at which a dependency is met.
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

/// Returns "compute", "send_forward", "send_backward", "collective" or "none".
std::string_view to_string(Stream stream);

/// A list of actions and the devices that execute it together: all replicas of a split stage, one
/// of them if replicas are independent, or one replica of a dealt stage. If devices hold several
/// stages (chunks), the list contains the actions of all of them.
struct Lane {
  /// The stages of the lane, ascending, at least one.
  std::vector<StageIndex> stages;
  /// The replica that runs on the lane's first device.
  std::int32_t replica = 0;
  /// The number of lanes to which the stages' micro-batches are dealt in turn.
  std::int32_t dealt_to = 1;
  /// The samples of each of its micro-batches that the lane processes.
  SampleRange samples;
  std::vector<DeviceIndex> devices;
  std::vector<Action> actions;
};

struct Schedule {
  std::int64_t num_micro_batches = 0;
  /// The lanes, ordered by first stage, then by replica.
  std::vector<Lane> lanes;
};

/// Returns the text form of an action, such as "2F0", "2SEND_F0", "2REDUCE_GRAD1" or "2STEP".
std::string to_text(Action action);

/// Returns the text form of a list of actions, such as "2F0 2F1 2B0". O(actions).
std::string to_text(const std::vector<Action>& actions);

/// Replaces `text` by the actions with a blank before each: " 2F0 2F1 2B0". O(actions).
void write_text(const std::vector<Action>& actions, std::string& text);

/// Returns the whole schedule, one line per device in the order of the lanes:
/// "node0:3: 2RECV_F0 2F0 ...". The text is canonical: equal schedules have equal text. Its hash is
/// the plan's schedule digest.
std::string to_text(const Schedule& schedule, const Topology& topology);

/// Parses a text such as "2F0 2F1 2B0", with blanks between the actions. Throws Error(BadInput)
/// that quotes the first word that is not an action:
/// "expected an action such as 2F0, got \"2X0\"". O(length).
std::vector<Action> parse_actions(std::string_view text);

/// Generates the schedule of a plan. Independent replicas have a lane each, all with the list that
/// the replicas together would have. The text is therefore the same, and a schedule that does not
/// deadlock with replicas together does not deadlock with independent replicas: each replica waits
/// for a part of what all of them would wait for. Requires: validate(plan) is empty. O(actions).
Schedule generate(const Plan& plan, Replicas replicas = Replicas::Together);

/// outline() returns the lanes of generate(plan) without their actions; generate_actions() replaces
/// the actions of one lane by those that generate(plan) gives it, for callers that need one lane at
/// a time. Requires: validate(plan) is empty, and `lane` is the lane `number` of outline(plan).
/// O(devices) and O(actions of the lane).
Schedule outline(const Plan& plan);
void generate_actions(const Plan& plan, std::size_t number, Lane& lane);

/// Returns, per stage, the maximum number of micro-batches in flight: a forward adds one, the last
/// part of a backward removes it. O(actions).
std::vector<std::int64_t> most_in_flight(const Schedule& schedule, std::size_t stages);

/// Returns the number of optimizer steps that update a stage's parameters: one at the end of the
/// iteration, or, with per-bucket steps, one for each bucket (one if the stage has none) plus one
/// if the stage has tied parameters. O(ties log stages).
std::int32_t optimizer_steps(const Plan& plan, StageIndex stage);

/// Sets the warm-up depths of a plan to the numbers in flight that result from its order. Requires:
/// the family leaves no choice of depths (all but 1F1B); the rest of the plan is valid. O(actions).
void fill_depths(Plan& plan);

/// Returns the violations of a schedule for that plan, each with its stage: a micro-batch that a
/// stage misses or processes twice, a backward before its forward, more micro-batches in flight
/// than the warm-up depth, sends without a matching receive, gradients that are never reduced. If
/// there are none of these, a dry run finds deadlocks and names the actions that wait for each
/// other. O(actions), times log stages of a device. For independent replicas, pass the schedule in
/// which the replicas run together.
std::vector<Violation> validate(const Schedule& schedule, const Plan& plan);

}  // namespace dapple
