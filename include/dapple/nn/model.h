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

/// Shapes are those of one sample.
struct ModelLayer {
  std::string name;
  Operation operation;  // what the module does
  std::unique_ptr<Module> module;
  Shape input;
  Shape output;
  /// A layer before it whose parameters come first among its module's.
  std::optional<std::int32_t> tied_to = {};
  std::size_t tied_parameters = 0;  // how many come first

  /// Parameters that are its own.
  std::span<const ParameterSpec> own_parameters() const {
    return std::span(module->parameters()).subspan(tied_parameters);
  }
};

/// The layers of `profile`, which do `operations`. Throws Error(BadInput) naming the layer where
/// the first one does not say what the model takes, one cannot take what the one before it makes,
/// the last one is no loss or another one is, parameter_bytes are not 4 for each parameter that is
/// its own, or those of a layer that it is tied to are not shaped as its first ones. O(layers).
/// Requires: an operation for each layer, and violations_of() it is empty.
std::vector<ModelLayer> make_model(const ModelProfile& profile,
                                   const std::vector<Operation>& operations,
                                   const std::string& source_name);

/// What a model takes that begins with the operation: [sequence] token numbers, a vector, or an
/// image of [channels, height, width]. Empty if the operation does not say.
Shape model_input(const Operation& operation);

/// Numbers of parameters, all together.
std::int64_t parameter_count(std::span<const ParameterSpec> parameters);

}  // namespace dapple::nn
