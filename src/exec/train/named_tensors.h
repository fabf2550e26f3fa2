// The tensors of a stage by their names, out of its pieces of memory and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dapple/exec/train/named_tensors.h"
#include "exec/train/stage_layout.h"

namespace dapple::exec {

/// Name of a tensor's `number`th array of the optimizer's state, from zero.
std::string moment_name(const std::string& tensor, std::size_t number);

/// One tensor per place that is no copy, of its parameters or gradients, or `states` of the
/// optimizer's. Requires: `values` are all of that kind, as the layout says.
void add_tensors(const StageLayout& layout, std::span<const float> values, TensorKind kind,
                 std::int64_t states, NamedTensors& tensors);

/// Place of the first of its values that is no number, or infinite.
std::optional<std::size_t> first_not_finite(const nn::Tensor& tensor);

/// Throws Bug where it is missing or has another shape.
std::span<const float> tensor_of(const NamedTensors& tensors, const std::string& name,
                                 const nn::Shape& shape);

}  // namespace dapple::exec
