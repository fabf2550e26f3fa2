// The actions of schedules. A plan whose order depends on costs lists its computations as actions;
// schedules add the communication around them.
//
// Sources: the text forms in the comments are those of PyTorch's pipelining schedules ("2F0":
// stage 2, forward, micro-batch 0); the backward in two parts follows Zero Bubble Pipeline
// Parallelism (ICLR'24).
#pragma once

#include <cstdint>

#include "dapple/core/index.h"

namespace dapple {

enum class ActionKind : std::uint8_t {
  /// 2F0
  Forward,
  /// 2B0: a whole backward, which computes the gradients of both the input and the weights.
  Backward,
  /// 2I0
  InputGradient,
  /// 2W0
  WeightGradient,
  /// 2SEND_F0: stage 2 sends its activations of micro-batch 0 to stage 3.
  SendActivation,
  /// 3RECV_F0: stage 3 receives them.
  ReceiveActivation,
  /// 3SEND_B0: stage 3 sends the gradient of its input to stage 2.
  SendGradient,
  /// 2RECV_B0: stage 2 receives it.
  ReceiveGradient,
  /// 2REDUCE_GRAD0: the all-reduce of bucket 0 of stage 2.
  AllReduce,
  /// 2REDUCE_TIED0: the all-reduce of the plan's tied gradients 0, by all stages that hold them.
  ReduceTied,
  /// 2STEP; if parameters are updated bucket by bucket: 2STEP, 2STEP1, 2STEP2.
  OptimizerStep,
};

/// Whether the action computes the gradient of the stage's input, which is sent to the previous
/// stage.
constexpr bool makes_input_gradient(ActionKind kind) {
  return kind == ActionKind::Backward || kind == ActionKind::InputGradient;
}

/// Whether the action computes the gradients of the weights. It is then the last part of a
/// backward, after which everything that the micro-batch's forward stashed is released.
constexpr bool makes_weight_gradient(ActionKind kind) {
  return kind == ActionKind::Backward || kind == ActionKind::WeightGradient;
}

/// Whether the action sums gradients over devices.
constexpr bool reduces(ActionKind kind) {
  return kind == ActionKind::AllReduce || kind == ActionKind::ReduceTied;
}

struct Action {
  ActionKind kind = ActionKind::Forward;
  /// The number of the micro-batch; for a reduction, that of the bucket or of the tied gradients;
  /// for an optimizer step, that of its part.
  std::int32_t index = 0;
  StageIndex stage = {};

  friend bool operator==(const Action&, const Action&) = default;
};

}  // namespace dapple
