// Figures of a whole iteration that its devices know only together. Sums are in one order, that of
// samples or of layers, so that no bit depends on the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/exec/train/training_backend.h"

namespace dapple::exec {

/// Mean over the global batch. Requires: `losses` are those of all its samples, in any order.
double mean_loss(std::vector<SampleLoss> losses);

/// Of all gradients. `squares`: the sum of the squares of each layer's gradients, by layer.
double norm_of(const std::vector<double>& squares);

/// What gradients are multiplied by so that their norm is at most `clip_norm`, as PyTorch does it.
float clip_factor(double norm, double clip_norm);

}  // namespace dapple::exec
