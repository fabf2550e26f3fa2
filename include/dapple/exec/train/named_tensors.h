// A model in training as tensors with names, independent of the devices that hold its parts.
#pragma once

#include <map>
#include <string>

#include "dapple/nn/tensor.h"

namespace dapple::exec {

/// Tensors by name. Parameters and gradients are named "LAYER.PARAMETER", the optimizer's state
/// "LAYER.PARAMETER.moment1" and "LAYER.PARAMETER.moment2".
using NamedTensors = std::map<std::string, nn::Tensor>;

enum class TensorKind { Parameters, Gradients, State };

}  // namespace dapple::exec
