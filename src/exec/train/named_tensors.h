// Conversion between a stage's contiguous arrays and tensors with names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dapple/exec/train/named_tensors.h"
#include "exec/train/stage_layout.h"

namespace dapple::exec {

/// Returns the name of a tensor's `number`th array of the optimizer's state, counted from zero.
std::string moment_name(const std::string& tensor, std::size_t number);

/// Adds, for each place that is not a copy, one tensor of parameters or gradients, or `states`
/// tensors of the optimizer's state. Of gradients and state, sets only the parts that the layout's
/// replica updates, so that those of all replicas complete a tensor. Requires: `values` are all
/// values of that kind, in the order of the layout.
void add_tensors(const StageLayout& layout, std::span<const float> values, TensorKind kind,
                 std::int64_t states, NamedTensors& tensors);

/// Returns the index of the first value that is NaN or infinite.
std::optional<std::size_t> first_not_finite(const nn::Tensor& tensor);

/// Returns the values of the tensor of that name. Throws Bug if it is missing or has another shape.
std::span<const float> tensor_of(const NamedTensors& tensors, const std::string& name,
                                 const nn::Shape& shape);

}  // namespace dapple::exec
