// A model in training as a file: parameters, the optimizer's state, and what training goes on with.
// Whole tensors under their layers' names, so that any plan of the model can go on from it.
//
// Format: safetensors (huggingface.co/docs/safetensors), all of them F32, in the order of their
// names. "__metadata__" has the rest, as text: "format" ("dapple-checkpoint/2"), "digest", "steps",
// "seed", and the optimizer's settings. The digest is the fingerprint of the whole file, in sixteen
// hexadecimal digits, taken with zeros as these digits. Version 1 had none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/exec/train/device_training.h"
#include "dapple/nn/optimizer.h"

namespace dapple::exec {

/// A training has at most so many steps.
inline constexpr std::int64_t kMostTrainingSteps = 1'000'000'000'000'000;

struct Checkpoint {
  std::int64_t steps = 0;  // made so far
  std::uint64_t seed = 1;
  nn::OptimizerSettings optimizer;
  NamedTensors tensors = {};  // parameters and state
  bool is_checked = true;     // as read: its format has a digest, which was right
};

/// The state of an optimizer before its first step, for each of the parameters in `tensors`.
void add_first_state(nn::OptimizerKind optimizer, NamedTensors& tensors);

/// O(bytes).
std::string write_checkpoint(const Checkpoint& checkpoint);

/// Throws Error(BadInput) with the first fault: cut off, no JSON, another format, a digest that is
/// not that of the file, a kind of number that is not F32, numbers that are not finite, offsets
/// that do not fit a shape or leave gaps, settings that are none. Other keys of "__metadata__" are
/// passed over. O(bytes).
Checkpoint read_checkpoint(std::string_view bytes, const std::string& source_name);

/// What keeps the model from going on from the checkpoint: an optimizer that keeps other state, or
/// the first tensor that is missing, has another shape or is another model's, and how many more.
std::optional<Violation> restoring_fault(const Checkpoint& checkpoint,
                                         const std::vector<nn::ModelLayer>& layers,
                                         nn::OptimizerKind optimizer);

}  // namespace dapple::exec
