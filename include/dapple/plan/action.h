// One thing that a device does: the vocabulary of schedules. A plan whose order depends on costs
// carries its computations in these words; schedules add the communication around them.
//
// Sources: text forms in the comments as in PyTorch's pipelining schedules ("2F0": stage 2,
// forward, micro-batch 0); the backward in two parts after Zero Bubble Pipeline Parallelism
// (ICLR'24).
#pragma once

#include <cstdint>

#include "dapple/core/index.h"

namespace dapple {

enum class ActionKind : std::uint8_t {
  Forward,            // 2F0
  Backward,           // 2B0: both gradients, of the input and of the weights
  InputGradient,      // 2I0
  WeightGradient,     // 2W0
  SendActivation,     // 2SEND_F0: stage 2's activations of micro-batch 0 leave for stage 3
  ReceiveActivation,  // 3RECV_F0: stage 3 takes them in
  SendGradient,       // 3SEND_B0
  ReceiveGradient,    // 2RECV_B0
  AllReduce,          // 2REDUCE_GRAD0: bucket 0 of stage 2
  ReduceTied,         // 2REDUCE_TIED0: the plan's tied gradients 0, with all stages that hold them
  OptimizerStep,      // 2STEP; bucket by bucket: 2STEP, 2STEP1, 2STEP2
};

/// Whether it makes the gradient of the stage's input, which goes to the stage before.
constexpr bool makes_input_gradient(ActionKind kind) {
  return kind == ActionKind::Backward || kind == ActionKind::InputGradient;
}

/// Whether it makes the weights' gradients: the last part of a backward, behind which nothing that
/// the micro-batch's forward kept is held.
constexpr bool makes_weight_gradient(ActionKind kind) {
  return kind == ActionKind::Backward || kind == ActionKind::WeightGradient;
}

/// Whether it sums gradients over devices.
constexpr bool reduces(ActionKind kind) {
  return kind == ActionKind::AllReduce || kind == ActionKind::ReduceTied;
}

struct Action {
  ActionKind kind = ActionKind::Forward;
  /// Micro-batch; of a reduction its bucket or its tied gradients; of a step its part.
  std::int32_t index = 0;
  StageIndex stage = {};

  friend bool operator==(const Action&, const Action&) = default;
};

}  // namespace dapple
