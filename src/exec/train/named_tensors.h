// Conversion between a stage's contiguous arrays and tensors with names.
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

/// Returns the name of a tensor's `number`th array of the optimizer's state, counted from zero.
std::string moment_name(const std::string& tensor, std::size_t number);

/// Adds, for each place that is not a copy, one whole tensor of parameters or gradients, or
/// `states` whole tensors of the optimizer's state. Sets only what the layout's rank holds and, of
/// gradients and state, its replica updates, so that all of these complete a tensor. Requires:
/// `values` are all values of that kind, in the order of the layout.
void add_tensors(const StageLayout& layout, std::span<const float> values, TensorKind kind,
                 std::int64_t states, NamedTensors& tensors);

/// Returns the index of the first value that is NaN or infinite.
std::optional<std::size_t> first_not_finite(const nn::Tensor& tensor);

/// The values that a layout holds at a place, of a whole tensor with another name: all of them, or
/// a tensor-parallel rank's part.
class HeldTensor {
 public:
  /// `tensors` must outlive it. Throws Bug if the tensor is missing or has another shape than the
  /// whole tensor of the place. O(values held).
  HeldTensor(const NamedTensors& tensors, const std::string& name, const TensorPlace& place);
  std::span<const float> values() const { return values_; }

 private:
  std::vector<float> part_;
  std::span<const float> values_;
};

}  // namespace dapple::exec
