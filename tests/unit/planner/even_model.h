// A model whose layers are alike, and options that say only the batch to plan for.
#pragma once

#include <cstdint>
#include <vector>

#include "../../support/models.h"
#include "dapple/planner/request/planner_options.h"

namespace dapple::small {

/// Four layers of 10 forward and 20 backward per sample.
inline ModelProfile even_model(std::int64_t parameters, std::int64_t output, std::int64_t stash) {
  return model_of(std::vector<LayerFigures>(
      4,
      {.forward = 10, .backward = 20, .output = output, .parameters = parameters, .stash = stash}));
}

inline planner::PlannerOptions batch(std::int64_t global) {
  planner::PlannerOptions options;
  options.global_batch_size = global;
  return options;
}

}  // namespace dapple::small
