// nn's optimizers on a GPU: one pass over parameters, gradients and state.
#pragma once

#include <cstdint>

#include "dapple/cuda/memory/tensor.h"
#include "dapple/nn/optimizer.h"

namespace dapple::cuda {

/// The arrays of an optimizer step. All have the same count except `state`, which consists of
/// state_count() such arrays one after another.
struct UpdatedArrays {
  View parameters;  // Float32
  View gradients;   // Float32
  View state;       // Float32
  /// A copy of the parameters in the precision of computation; count 0 for none.
  View copy;
};

/// Performs step `number`, counted from one, like nn::update(). The gradients are first multiplied
/// by `gradient_factor`: one over the loss scale, times the factor of gradient clipping.
void update(const Stream& stream, const nn::OptimizerSettings& settings, std::int64_t number,
            float gradient_factor, const UpdatedArrays& arrays);

}  // namespace dapple::cuda
