// The mean loss and the gradient norm of a whole iteration. Sums are in the order of samples or of
// layers, so that the result does not depend on the plan, to the last bit.
#pragma once

#include <vector>

#include "dapple/exec/train/training_backend.h"

namespace dapple::exec {

/// Returns the mean over the global batch. Requires: `losses` are those of all its samples, in any
/// order.
double mean_loss(std::vector<SampleLoss> losses);

/// Returns the norm of all gradients. `squares`: the sum of the squares of each layer's gradients,
/// by layer.
double norm_of(const std::vector<double>& squares);

/// Returns the factor that limits the gradients' norm to `clip_norm`, by the formula of PyTorch's
/// clip_grad_norm_.
float clip_factor(double norm, double clip_norm);

}  // namespace dapple::exec
