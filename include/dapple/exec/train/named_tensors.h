// A model in training as tensors with names, whatever devices its parts lie on.
#pragma once

#include <map>
#include <string>

#include "dapple/nn/tensor.h"

namespace dapple::exec {

/// "LAYER.PARAMETER"; state of the optimizer "LAYER.PARAMETER.moment1", "... .moment2".
using NamedTensors = std::map<std::string, nn::Tensor>;

enum class TensorKind { Parameters, Gradients, State };

}  // namespace dapple::exec
