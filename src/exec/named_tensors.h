// The tensors of a stage by their names, out of its pieces of memory and back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dapple/exec/device_training.h"
#include "stage_parameters.h"

namespace dapple {

/// Name of a tensor's `number`th array of the optimizer's state, from zero.
std::string moment_name(const std::string& tensor, std::int64_t number);

/// One tensor per place that is no copy, of its parameters or gradients, or `states` of the
/// optimizer's. Requires: `values` are all of that kind, in the order of the places.
void add_tensors(const std::vector<TensorPlace>& places, std::span<const float> values,
                 TensorKind kind, std::int64_t states, NamedTensors& tensors);

/// Sets parameters, and state where there is any. Throws Bug where a tensor is missing or has
/// another shape.
void restore(const NamedTensors& tensors, std::int64_t states, StageParameters& stage);

/// All values of one kind, as they lie.
std::span<float> values_of(StageParameters& stage, TensorKind kind);

}  // namespace dapple
