#include "dapple/profile/parallelism.h"

#include "dapple/core/error.h"

namespace dapple {
namespace {

/// Returns "2nd", "3rd", "4th", "11th", "21st" and so on.
std::string ordinal(std::int64_t number) {
  const std::int64_t digit = number / 10 % 10 == 1 ? 0 : number % 10;
  const char* const ending = digit == 1 ? "st" : digit == 2 ? "nd" : digit == 3 ? "rd" : "th";
  return std::to_string(number) + ending;
}

}  // namespace

std::string recomputation_text(const Parallelism& parallelism) {
  std::string text = to_text(parallelism.recomputes);
  const std::int64_t number = parallelism.recomputed_layers.number();
  switch (parallelism.recomputed_layers.kind()) {
    case LayerSelection::Kind::All:
      return text;
    case LayerSelection::Kind::First:
      text += " in the first ";
      return text + (number > 1 ? std::to_string(number) + " layers" : "layer") + " of a stage";
    case LayerSelection::Kind::EveryNth:
      return text + " in every " + ordinal(number) + " layer of a stage";
  }
  throw Bug("a selection of layers without a text");
}

std::string to_text(const Parallelism& parallelism) {
  std::string text = "tensor " + std::to_string(parallelism.tensor);
  if (parallelism.sequence) text += " with sequence parallelism";
  if (parallelism.context > 1) text += ", context " + std::to_string(parallelism.context);
  if (parallelism.group_replicas > 1)
    text += ", data " + std::to_string(parallelism.group_replicas);
  if (parallelism.experts > 1) {
    text += ", experts " + std::to_string(parallelism.experts);
    if (parallelism.expert_tensor > 1) {
      text += " of tensor " + std::to_string(parallelism.expert_tensor);
    }
  }
  if (parallelism.shards_over_replicas()) text += ", sharded optimizer state";
  if (parallelism.optimizer_shards > 0) {
    text += ", optimizer state sharded over " + std::to_string(parallelism.optimizer_shards);
  }
  if (parallelism.full_shards > 1) {
    text += ", all state sharded over " + std::to_string(parallelism.full_shards);
  }
  if (!parallelism.recomputes.none()) text += ", recomputed " + recomputation_text(parallelism);
  return text;
}

std::string short_text(const Parallelism& parallelism) {
  std::string text = "tensor " + std::to_string(parallelism.tensor);
  if (parallelism.sequence) text += ", sequence";
  if (parallelism.context > 1) text += ", context " + std::to_string(parallelism.context);
  if (parallelism.group_replicas > 1)
    text += ", data " + std::to_string(parallelism.group_replicas);
  if (parallelism.experts > 1) {
    text += ", experts " + std::to_string(parallelism.experts);
    if (parallelism.expert_tensor > 1) text += " x " + std::to_string(parallelism.expert_tensor);
  }
  if (parallelism.shards_over_replicas()) text += ", sharded";
  if (parallelism.optimizer_shards > 0) {
    text += ", optimizer sharded over " + std::to_string(parallelism.optimizer_shards);
  }
  if (parallelism.full_shards > 1) {
    text += ", sharded over " + std::to_string(parallelism.full_shards);
  }
  if (!parallelism.recomputes.none()) {
    text += ", recompute " + to_text(parallelism.recomputation());
  }
  return text;
}

}  // namespace dapple
