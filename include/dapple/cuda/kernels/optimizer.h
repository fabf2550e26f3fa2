// nn's optimizers on a GPU: one pass over parameters, gradients and state.
#pragma once

#include <cstdint>

#include "dapple/cuda/memory/tensor.h"
#include "dapple/nn/optimizer.h"

namespace dapple::cuda {

/// Arrays of an optimizer step, all of the same count but the state, which is state_count() of them
/// one after another.
struct UpdatedArrays {
  View parameters;  // Float32
  View gradients;   // Float32
  View state;       // Float32
  View copy;        // the parameters again in the precision of computation; count 0 for none
};

/// One step as nn::update(), the `number`th, counted from one, of gradients that are multiplied by
/// `gradient_factor` first: one over the scale of the loss, times what clipping asks for.
void update(const Stream& stream, const nn::OptimizerSettings& settings, std::int64_t number,
            float gradient_factor, const UpdatedArrays& arrays);

}  // namespace dapple::cuda
