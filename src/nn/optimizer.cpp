#include "dapple/nn/optimizer.h"

#include <cmath>

#include "dapple/core/error.h"
#include "nn/matrix.h"

namespace dapple::nn {
namespace {

void adam(const OptimizerSettings& settings, std::int64_t number, std::span<float> parameters,
          std::span<const float> gradients, std::span<float> state) {
  const std::size_t count = state.size() / 2;
  const auto steps = static_cast<double>(number);
  const double mean_share = 1 - std::pow(static_cast<double>(settings.beta1), steps);
  const double square_share = 1 - std::pow(static_cast<double>(settings.beta2), steps);
  const auto rate = static_cast<float>(settings.learning_rate / mean_share);
  const auto root = static_cast<float>(std::sqrt(square_share));
  const bool decays_apart = settings.kind == OptimizerKind::AdamW;
  const AdamStep step{.keep = decays_apart ? 1 - settings.learning_rate * settings.weight_decay : 1,
                      .decay = decays_apart ? 0 : settings.weight_decay,
                      .mean_share = 1 - settings.beta1,
                      .square_keep = settings.beta2,
                      .square_share = 1 - settings.beta2,
                      .rate = rate,
                      .root = root,
                      .epsilon = settings.epsilon};
  kernels().elementwise->adam(step,
                              {.parameters = parameters.data(),
                               .gradients = gradients.data(),
                               .means = state.data(),
                               .squares = state.data() + count},
                              static_cast<std::int64_t>(count));
}

}  // namespace

std::string_view to_string(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::Sgd:
      return "sgd";
    case OptimizerKind::Momentum:
      return "momentum";
    case OptimizerKind::Adam:
      return "adam";
    case OptimizerKind::AdamW:
      return "adamw";
  }
  throw Bug("an optimizer of no kind");
}

std::optional<OptimizerKind> optimizer_of(std::string_view name) {
  for (const OptimizerKind kind :
       {OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam, OptimizerKind::AdamW}) {
    if (to_string(kind) == name) return kind;
  }
  return std::nullopt;
}

std::int64_t state_count(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::Sgd:
      return 0;
    case OptimizerKind::Momentum:
      return 1;
    case OptimizerKind::Adam:
    case OptimizerKind::AdamW:
      return 2;
  }
  throw Bug("an optimizer of no kind");
}

void update(const OptimizerSettings& settings, std::int64_t number, std::span<float> parameters,
            std::span<const float> gradients, std::span<float> state) {
  Array values = array_of(parameters);
  const ConstArray slopes = array_of(gradients);
  switch (settings.kind) {
    case OptimizerKind::Sgd:
      values -= settings.learning_rate * (slopes + settings.weight_decay * values);
      return;
    case OptimizerKind::Momentum: {
      Array velocity = array_of(state);
      velocity = settings.momentum * velocity + (slopes + settings.weight_decay * values);
      values -= settings.learning_rate * velocity;
      return;
    }
    case OptimizerKind::Adam:
    case OptimizerKind::AdamW:
      adam(settings, number, parameters, gradients, state);
      return;
  }
}

}  // namespace dapple::nn
