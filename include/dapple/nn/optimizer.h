// Optimizers, which update parameters element by element, so that any part of a model's parameters
// can be updated on its own. Formulas and defaults are those of PyTorch's optimizers of the same
// names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dapple::nn {

enum class OptimizerKind { Sgd, Momentum, Adam, AdamW };

/// Returns "sgd", "momentum", "adam" or "adamw".
std::string_view to_string(OptimizerKind kind);
/// Returns the optimizer of that name, or nothing if there is none.
std::optional<OptimizerKind> optimizer_of(std::string_view name);

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::AdamW;
  float learning_rate = 1e-3F;
  /// Used by Momentum only.
  float momentum = 0.9F;
  /// beta1, beta2 and epsilon are used by Adam and AdamW only.
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  /// Sgd, Momentum and Adam add the decay term to the gradient; AdamW decouples it.
  float weight_decay = 0.0F;
};

/// Returns the number of state floats per parameter: 0 for Sgd, 1 for Momentum, and 2 for Adam and
/// AdamW. All of the state is zero before the first step.
std::int64_t state_count(OptimizerKind kind);

/// Performs one optimizer step; `number` counts the steps from one. `state` holds state_count()
/// arrays, each as long as `parameters`, one after another.
void update(const OptimizerSettings& settings, std::int64_t number, std::span<float> parameters,
            std::span<const float> gradients, std::span<float> state);

}  // namespace dapple::nn
