// The order of actions on each device, communication included, and no times. A schedule is data:
// one generator makes it from a plan, the simulator and the executor both interpret it.
//
// Sources: GPipe (NeurIPS'19); DAPPLE (PPoPP'21) section 3, early backward scheduling; text form of
// compute actions as in PyTorch's pipelining schedules ("2F0": stage 2, forward, micro-batch 0).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/index.h"
#include "dapple/plan/plan.h"

namespace dapple {

enum class ActionKind : std::uint8_t {
  Forward,            // 2F0
  Backward,           // 2B0
  SendActivation,     // 2SEND_F0: stage 2's activations of micro-batch 0 leave for stage 3
  ReceiveActivation,  // 3RECV_F0: stage 3 takes them in
  SendGradient,       // 3SEND_B0
  ReceiveGradient,    // 2RECV_B0
  AllReduce,          // 2REDUCE_GRAD0: bucket 0 of stage 2
  OptimizerStep,      // 2STEP
};

/// What an action is called in the text form: "F", "SEND_F", "REDUCE_GRAD", "STEP".
std::string_view to_string(ActionKind kind);

/// Streams of a device; first in, first out on each. A receive is on none: it is the moment at
/// which a dependency is met.
enum class Stream : std::uint8_t { Compute, SendForward, SendBackward, Collective, None };
Stream stream_of(ActionKind kind);

/// "compute", "send_forward", "send_backward", "collective", "none".
std::string_view to_string(Stream stream);

struct Action {
  ActionKind kind = ActionKind::Forward;
  std::int32_t index = 0;  // micro-batch, or bucket of an all-reduce; 0 for the optimizer step

  friend bool operator==(const Action&, const Action&) = default;
};

/// Devices that run the same list: all replicas of a split stage, or one replica of a dealt stage.
struct Lane {
  StageIndex stage;
  std::int32_t replica = 0;  // of a dealt stage; 0 for a split one
  std::vector<DeviceIndex> devices;
  std::vector<Action> actions;
};

struct Schedule {
  std::int64_t num_micro_batches = 0;
  std::vector<Lane> lanes;  // stage by stage
};

/// "2F0", "2SEND_F0", "2REDUCE_GRAD1", "2STEP".
std::string to_text(StageIndex stage, Action action);

/// The whole schedule, one line per device in the order of the lanes: "node0:3: 2RECV_F0 2F0 ...".
/// Canonical: equal schedules have equal text. Its hash is the plan's schedule digest.
std::string to_text(const Schedule& schedule, const Topology& topology);

/// The schedule of a plan. Requires: validate(plan) is empty. O(actions).
Schedule generate(const Plan& plan);

/// Faults of a schedule for that plan, each named: a micro-batch that a stage misses or passes
/// twice, a backward before its forward, more in flight than the warm-up depth, sends without their
/// receive, gradients never reduced; and, where all of that holds, a dry run that finds deadlocks
/// and names the actions that wait for each other. O(actions).
std::vector<Violation> validate(const Schedule& schedule, const Plan& plan);

}  // namespace dapple
