// Figures of a whole iteration that its devices know only together. Sums are in one order, that of
// samples or of layers, so that no bit depends on the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/exec/cpu_backend.h"

namespace dapple {

/// Mean over the global batch. Requires: `losses` are those of all its samples, in any order.
double mean_loss(std::vector<CpuBackend::SampleLoss> losses);

/// What gradients are multiplied by so that their norm is at most `clip_norm`, as PyTorch does it.
/// `squares`: the sum of the squares of each layer's gradients, by layer.
float clip_factor(const std::vector<double>& squares, double clip_norm);

}  // namespace dapple
