#include "dapple/nn/optimizer.h"

#include <cmath>

#include "dapple/core/error.h"
#include "matrix.h"

namespace dapple::nn {
namespace {

void adam(const OptimizerSettings& settings, std::int64_t number, Array parameters,
          const ConstArray& gradients, std::span<float> state) {
  const std::size_t count = state.size() / 2;
  Array mean = array_of(state.first(count));
  Array square = array_of(state.subspan(count));
  const auto steps = static_cast<double>(number);
  const double mean_share = 1 - std::pow(static_cast<double>(settings.beta1), steps);
  const double square_share = 1 - std::pow(static_cast<double>(settings.beta2), steps);
  const auto rate = static_cast<float>(settings.learning_rate / mean_share);
  const auto root = static_cast<float>(std::sqrt(square_share));
  if (settings.kind == OptimizerKind::AdamW) {
    parameters *= 1 - settings.learning_rate * settings.weight_decay;
    mean += (1 - settings.beta1) * (gradients - mean);
    square = settings.beta2 * square + (1 - settings.beta2) * gradients.square();
  } else {
    const auto decayed = gradients + settings.weight_decay * parameters;
    mean += (1 - settings.beta1) * (decayed - mean);
    square = settings.beta2 * square + (1 - settings.beta2) * decayed.square();
  }
  parameters -= rate * mean / (square.sqrt() / root + settings.epsilon);
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
      adam(settings, number, values, slopes, state);
      return;
  }
}

}  // namespace dapple::nn
