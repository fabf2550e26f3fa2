// How gradients change parameters: element by element, so that any part of a model's parameters can
// be updated on its own. Formulas and defaults as in PyTorch's optimizers of the same names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dapple::nn {

enum class OptimizerKind { Sgd, Momentum, Adam, AdamW };

/// "sgd", "momentum", "adam", "adamw".
std::string_view to_string(OptimizerKind kind);
std::optional<OptimizerKind> optimizer_of(std::string_view name);

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::AdamW;
  float learning_rate = 1e-3F;
  float momentum = 0.9F;  // of Momentum
  float beta1 = 0.9F;     // of Adam and AdamW
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0.0F;  // Adam and the two before it add it to the gradient; AdamW does not
};

/// Floats of state per parameter: 0, 1, 2, 2. All zero before the first step.
std::int64_t state_count(OptimizerKind kind);

/// One step, the `number`th, counted from one. `state` holds state_count() arrays as long as
/// `parameters`, one after another.
void update(const OptimizerSettings& settings, std::int64_t number, std::span<float> parameters,
            std::span<const float> gradients, std::span<float> state);

}  // namespace dapple::nn
