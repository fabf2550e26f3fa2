// A model as a chain of modules, one per layer of its profile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dapple/nn/module.h"
#include "dapple/nn/tensor.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/operation.h"

namespace dapple::nn {

/// A layer that can be run. Shapes are those of one sample.
struct ModelLayer {
  std::string name;
  /// What the module computes.
  Operation operation;
  std::unique_ptr<Module> module;
  Shape input;
  Shape output;
  /// The shape of the targets of a loss.
  Shape targets = {};
  /// An earlier layer whose parameters are the first ones of this layer's module.
  std::optional<std::int32_t> tied_to = {};
  /// The number of the module's first parameters that belong to `tied_to`.
  std::size_t tied_parameters = 0;

  /// Returns the parameters that the layer owns: all that are not tied.
  std::span<const ParameterSpec> own_parameters() const {
    return std::span(module->parameters()).subspan(tied_parameters);
  }
};

/// Builds the layers of `profile`, which perform `operations`. Throws Error(BadInput), naming the
/// layer, if the first operation does not determine the model's input, a layer does not accept the
/// output of its predecessor, the last layer is not a loss or an earlier one is, a layer's
/// parameter_bytes are not 4 for each parameter that it owns, or the parameters of the layer to
/// which it is tied do not have the shapes of its own first ones. O(layers). Requires: there is one
/// operation for each layer, and violations_of() each is empty.
std::vector<ModelLayer> make_model(const ModelProfile& profile,
                                   const std::vector<Operation>& operations,
                                   const std::string& source_name);

/// Returns the shape of one input sample of a model that begins with `operation`: [sequence] token
/// numbers, a [sequence, hidden] sequence of vectors, a vector, or a [channels, height, width]
/// image. Returns an empty shape if the operation does not determine it.
Shape model_input(const Operation& operation);

/// Returns the total number of elements of `parameters`.
std::int64_t parameter_count(std::span<const ParameterSpec> parameters);

}  // namespace dapple::nn
