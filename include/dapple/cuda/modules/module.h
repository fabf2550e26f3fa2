// The layers of a model on a GPU: the counterpart of nn's modules, which say what their parameters
// are and which shapes they take. All is enqueued on the device's compute stream; nobody waits.
//
// A module has no state. Activations and their gradients are in the precision of computation, so
// are the parameters, which are working copies; token numbers and targets are Int32. Losses and the
// gradients of weights are Float32. What a forward keeps for its backward lies in a stash that the
// caller holds. A backward is the gradient of the input and then that of the weights; a schedule
// may do other work between the two.
//
// Results repeat to the bit but for two, in which numbers are added up in whatever order they come:
// gradients of tokens that a batch has several times, and of queries where cuDNN attends.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/profile/operation.h"

namespace dapple::cuda {

/// As nn::Stash.
struct DeviceStash {
  std::vector<DeviceTensor> tensors;
  std::vector<DeviceStash> parts;
};

/// Of all numbers in it. O(tensors).
Bytes size_of(const DeviceStash& stash);

/// A module's parameters, in its precision, or the sums of their gradients, Float32, in the order
/// of nn::Module::parameters().
using Parameters = std::span<const View>;
using Gradients = std::span<const View>;

class DeviceModule {
 public:
  virtual ~DeviceModule() = default;

  /// How many parameters it has.
  virtual std::size_t parameter_count() const = 0;

  /// `targets` are the samples' right answers: only a loss looks at them. Requires: the stash is
  /// empty, the input is what nn's module takes, and numbers of tokens and classes are in range.
  virtual DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                               const DeviceTensor& targets, DeviceStash& stash) const = 0;

  /// The gradient of the input, given that of the output (of a loss: Float32, one per sample). What
  /// the weights' gradients need is left in the stash, the rest taken out of it. A module whose
  /// input has no gradient (token numbers) gives an empty tensor.
  virtual DeviceTensor input_gradient(Device& device, Parameters parameters,
                                      DeviceTensor output_gradient, DeviceStash& stash) const = 0;

  /// Adds the weights' gradients of the stash's samples to `sums`, and leaves nothing in the stash.
  /// Requires: input_gradient() was called on it.
  virtual void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const = 0;
};

/// Requires: violations_of(operation) is empty.
std::unique_ptr<DeviceModule> make_module(const Operation& operation, Precision precision);

/// Of layers that run one after another, each on nothing but what the one before has made: between
/// a head and its loss, scores may have gaps behind the rows, where the products are quickest.
std::vector<std::unique_ptr<DeviceModule>> make_modules(std::span<const Operation> operations,
                                                        Precision precision);

/// What the `number`th of them takes, where all before it takes is without gaps: the shape, samples
/// included, with a last dimension that is how far apart its rows begin.
nn::Shape taken_shape(std::span<const Operation> operations, std::size_t number, nn::Shape dense,
                      Precision precision);

/// What a product of matrices takes of the arena for a moment, at most. Recommended for Hopper, and
/// plenty before it (cuBLAS documentation, "cublasSetWorkspace").
inline constexpr Bytes kProductWorkspace{std::int64_t{32} << 20};

/// What a module takes of the arena for a moment, beside tensors that it is given, returns or
/// stashes, at most: of an input of such a shape, samples included.
Bytes workspace_of(const Operation& operation, const nn::Shape& input, Precision precision);

}  // namespace dapple::cuda
