// Checkpoints: parameters, the optimizer's state, and the position of a training, as a file.
// Tensors are whole and named by layer, so any plan of the model can continue from it.
//
// Format: safetensors (huggingface.co/docs/safetensors), all tensors F32, in the order of their
// names. "__metadata__" has the rest, as text: "format" ("dapple-checkpoint/2"), "digest", "steps",
// "seed", and the optimizer's settings. The digest is the fingerprint of the whole file, computed
// with zeros in its place, as sixteen hexadecimal digits. Version 1 had no digest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/exec/train/device_training.h"
#include "dapple/nn/optimizer.h"

namespace dapple::exec {

/// The largest number of steps of a training.
inline constexpr std::int64_t kMostTrainingSteps = 1'000'000'000'000'000;

struct Checkpoint {
  /// The steps made so far.
  std::int64_t steps = 0;
  std::uint64_t seed = 1;
  nn::OptimizerSettings optimizer;
  /// Parameters and the optimizer's state.
  NamedTensors tensors = {};
  /// After reading: whether the file has a digest, which was then verified.
  bool is_checked = true;
};

/// Adds the initial state of the optimizer for each of the parameters in `tensors`.
void add_first_state(nn::OptimizerKind optimizer, NamedTensors& tensors);

/// Returns the bytes of the checkpoint's file. O(bytes).
std::string write_checkpoint(const Checkpoint& checkpoint);

/// Reads the bytes of a checkpoint's file. Throws Error(BadInput) with the first fault: a truncated
/// file, invalid JSON, another format, a digest that is not that of the file, a dtype other than
/// F32, numbers that are not finite, offsets that do not fit a shape or leave gaps, invalid
/// settings. Other keys of "__metadata__" are ignored. O(bytes).
Checkpoint read_checkpoint(std::string_view bytes, const std::string& source_name);

/// Returns what prevents the model from continuing from the checkpoint: an optimizer that keeps
/// other state; or the first tensor that is missing, has another shape or is not the model's, with
/// the number of further ones.
std::optional<Violation> restoring_fault(const Checkpoint& checkpoint,
                                         const std::vector<nn::ModelLayer>& layers,
                                         nn::OptimizerKind optimizer);

}  // namespace dapple::exec
