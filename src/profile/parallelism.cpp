#include "dapple/profile/parallelism.h"

namespace dapple {

std::string recomputation_text(const Parallelism& parallelism) {
  std::string text = to_text(parallelism.recomputes);
  if (parallelism.recomputed_layers == 0) return text;
  text += " in the first ";
  if (parallelism.recomputed_layers > 1)
    text += std::to_string(parallelism.recomputed_layers) + ' ';
  return text + (parallelism.recomputed_layers > 1 ? "layers of a stage" : "layer of a stage");
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
  if (parallelism.shards_optimizer) text += ", sharded optimizer state";
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
  if (parallelism.shards_optimizer) text += ", sharded";
  if (parallelism.full_shards > 1) {
    text += ", sharded over " + std::to_string(parallelism.full_shards);
  }
  if (!parallelism.recomputes.none()) {
    text += ", recompute " + to_text(parallelism.recomputation());
  }
  return text;
}

}  // namespace dapple
