// The layers of a model as they are run: forward, gradient of the input, gradient of the weights,
// each in single precision on one thread.
//
// A module has no state. Its parameters belong to the caller, who may keep them anywhere; what its
// forward keeps for its backward lies in a stash that the caller holds. A backward is the gradient
// of the input and then that of the weights; a schedule may do other work between the two, without
// a bit of difference.
//
// The last module of a model is its loss: one number per sample. The loss of an iteration is the
// mean of them over the global batch, so that a sample's gradient of the model's output is one over
// the global batch size and gradients of micro-batches and replicas add up.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/nn/tensor.h"
#include "dapple/profile/operation.h"

namespace dapple::nn {

/// What a parameter is before training.
struct Initial {
  enum class Kind { Constant, Normal };
  Kind kind = Kind::Constant;
  float value = 0;  // the constant, or the standard deviation around zero
};

struct ParameterSpec {
  std::string name;  // unique in the module: "weight", "attention.bias"
  Shape shape;
  Initial initial;
};

/// What a forward leaves for the backward. Only the module that made it knows what is what: tensors
/// of its own, and the stashes of the modules that it is made of. What the profile calls the stash
/// of a layer: its input where that is needed, its output not.
struct Stash {
  std::vector<Tensor> tensors;
  std::vector<Stash> parts;
};

/// Of all numbers in it. O(tensors).
Bytes size_of(const Stash& stash);

/// A module's parameters or their gradients, in the order of parameters().
using Parameters = std::span<const std::span<const float>>;
using Gradients = std::span<const std::span<float>>;

class Module {
 public:
  virtual ~Module() = default;

  virtual const std::vector<ParameterSpec>& parameters() const = 0;

  /// Of one sample, the first dimension left out. Throws Error(BadInput), without a source, where
  /// the module cannot take such an input.
  virtual Shape output_shape(const Shape& sample) const = 0;

  /// `targets` are the samples' right answers: only a loss looks at them. Requires: the stash is
  /// empty, the input has an output_shape(), and numbers of tokens and classes are in range.
  virtual Tensor forward(Parameters parameters, Tensor input, const Tensor& targets,
                         Stash& stash) const = 0;

  /// The gradient of the input, given that of the output. What the weights' gradients need is left
  /// in the stash, the rest taken out of it. A module whose input has no gradient (token numbers)
  /// gives an empty tensor.
  virtual Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                                Stash& stash) const = 0;

  /// Adds the weights' gradients of the stash's samples to `sums`, and leaves nothing in the stash.
  /// Requires: input_gradient() was called on it.
  virtual void weight_gradient(Stash& stash, Gradients sums) const = 0;
};

/// Requires: violations_of(operation) is empty.
std::unique_ptr<Module> make_module(const Operation& operation);

/// The values of a parameter before training: a function of seed and name alone, so that every way
/// to place the layers begins with the same model. `name` is "LAYER.PARAMETER".
void initialize(const ParameterSpec& parameter, const std::string& name, std::uint64_t seed,
                std::span<float> values);

}  // namespace dapple::nn
