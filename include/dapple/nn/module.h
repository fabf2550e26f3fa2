// The executable layers of a model: forward, input gradient and weight gradient, each in single
// precision on one thread.
//
// A module has no state. Its parameters belong to the caller, who may keep them anywhere; what its
// forward keeps for its backward is in a stash that the caller holds. A backward computes the input
// gradient and then the weight gradient; a schedule may do other work between the two without
// changing a bit of the results.
//
// The last module of a model is its loss, one number per sample. The loss of an iteration is the
// mean over the global batch: the gradient of each sample's loss is one over the global batch size,
// and the gradients of micro-batches and replicas add up.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/nn/tensor.h"
#include "dapple/profile/operation.h"

namespace dapple::nn {

/// The distribution of a parameter's values before training.
struct Initial {
  enum class Kind { Constant, Normal };
  Kind kind = Kind::Constant;
  /// The constant, or the standard deviation of the normal distribution, whose mean is zero.
  float value = 0;
};

/// The part of a parameter that one rank of a group holds: some ranges along one dimension of the
/// whole parameter, one after another. What lies beyond the whole is padding.
struct ParameterPart {
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  /// The shape of the whole parameter.
  Shape whole;
  std::size_t dimension = 0;
  std::vector<Range> ranges;
  /// The only range of the first dimension that the rank has a part of. Requires: it is within the
  /// whole, and `dimension` is another one.
  std::optional<Range> of_first = {};
};

/// Copies the part out of the values of the whole parameter, with zeros as padding, or into them.
/// O(values of the part). Requires: `values` has the size of the part.
void take_part(const ParameterPart& part, std::span<const float> whole, std::span<float> values);
void put_part(const ParameterPart& part, std::span<const float> values, std::span<float> whole);

struct ParameterSpec {
  /// A name that is unique in the module, such as "weight" or "attention.bias".
  std::string name;
  Shape shape;
  Initial initial;
  /// What the parameter is a part of, where each rank of a tensor-parallel group has its own.
  std::optional<ParameterPart> part = {};
  /// Whether all ranks of a tensor-parallel group hold the whole parameter, and each computes the
  /// gradient from its part of every sequence, so that the gradient is the sum over the ranks.
  bool is_summed_over_ranks = false;
  /// Whether the parameter belongs to experts of which each expert-parallel rank has others.
  bool is_of_experts = false;

  /// The shape of the whole parameter.
  const Shape& whole_shape() const { return part ? part->whole : shape; }
};

/// The data that a forward keeps for the backward: tensors of the module itself and the stashes of
/// the modules that it consists of. Only the module that created it knows its layout. It is what
/// the profile calls the stash of a layer: it includes the input where the backward needs it, and
/// never the output.
struct Stash {
  std::vector<Tensor> tensors;
  std::vector<Stash> parts;
};

/// Returns the size of all values in the stash. O(tensors).
Bytes size_of(const Stash& stash);

/// The values of a module's parameters and of their gradients, in the order of parameters().
using Parameters = std::span<const std::span<const float>>;
using Gradients = std::span<const std::span<float>>;

class Module {
 public:
  virtual ~Module() = default;

  virtual const std::vector<ParameterSpec>& parameters() const = 0;

  /// Returns the output shape for an input sample of shape `sample`, both without the batch
  /// dimension. Throws Error(BadInput), without a source, if the module does not accept such an
  /// input.
  virtual Shape output_shape(const Shape& sample) const = 0;

  /// Returns the output and fills the stash. `targets` are the samples' labels, which only a loss
  /// reads. Requires: the stash is empty, output_shape() accepts the input, and token and class
  /// numbers are in range.
  virtual Tensor forward(Parameters parameters, Tensor input, const Tensor& targets,
                         Stash& stash) const = 0;

  /// Returns the gradient of the input, given that of the output, and leaves in the stash only what
  /// weight_gradient() needs. Returns an empty tensor if the input has no gradient (token numbers).
  virtual Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                                Stash& stash) const = 0;

  /// Adds the weight gradients of the stash's samples to `sums` and empties the stash. Requires:
  /// input_gradient() was called with this stash.
  virtual void weight_gradient(Stash& stash, Gradients sums) const = 0;
};

/// Creates the module that performs `operation`. Requires: violations_of(operation) is empty.
std::unique_ptr<Module> make_module(const Operation& operation);

/// Writes the initial values of a parameter. They depend on the seed, the name and the spec only,
/// so that training starts from the same model under every plan; a part has those of the whole.
/// `name` is "LAYER.PARAMETER".
void initialize(const ParameterSpec& parameter, const std::string& name, std::uint64_t seed,
                std::span<float> values);

}  // namespace dapple::nn
