// The layers of a model on a GPU: the counterparts of nn's modules, which define their parameters
// and shapes. All work is enqueued on the device's compute stream without waiting, but for experts:
// how many rows each has decides what is enqueued, so that the host waits for these numbers.
//
// A module has no state. Activations, their gradients and the parameters, which are working copies,
// are in the precision of computation; token numbers and targets are Int32. Losses and weight
// gradients are Float32. What a forward keeps for its backward lies in a stash that the caller
// holds. A backward computes the input gradient and then the weight gradient; a schedule may do
// other work between the two.
//
// Results are bitwise reproducible with two exceptions, in which the order of additions varies: the
// gradients of tokens that occur several times in a batch, and the gradients of queries if cuDNN
// computes attention.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/profile/operation.h"

namespace dapple::cuda {

/// The counterpart of nn::Stash.
struct DeviceStash {
  std::vector<DeviceTensor> tensors;
  /// Numbers of rows that only the computation has told.
  std::vector<std::int64_t> counts = {};
  std::vector<DeviceStash> parts;
};

/// Returns the bytes of all numbers in a stash. O(tensors).
Bytes size_of(const DeviceStash& stash);

/// A module's parameters, in its precision, or the Float32 sums of their gradients, in the order of
/// nn::Module::parameters().
using Parameters = std::span<const View>;
using Gradients = std::span<const View>;

class DeviceModule {
 public:
  virtual ~DeviceModule() = default;

  /// Returns the number of the module's parameters.
  virtual std::size_t parameter_count() const = 0;

  /// Computes the output. `targets` are the targets of the samples, which only a loss uses.
  /// Requires: the stash is empty, the input is valid for nn's module, and token and class numbers
  /// are in range.
  virtual DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                               const DeviceTensor& targets, DeviceStash& stash) const = 0;

  /// Computes the gradient of the input from that of the output (for a loss: Float32, one per
  /// sample). It leaves in the stash what the weight gradients need, and removes the rest. A module
  /// whose input has no gradient (token numbers) returns an empty tensor.
  virtual DeviceTensor input_gradient(Device& device, Parameters parameters,
                                      DeviceTensor output_gradient, DeviceStash& stash) const = 0;

  /// Adds the weight gradients of the stash's samples to `sums` and empties the stash. Requires:
  /// input_gradient() was called with the stash.
  virtual void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const = 0;
};

/// Makes the module of an operation. Requires: violations_of(operation) is empty.
std::unique_ptr<DeviceModule> make_module(const Operation& operation, Precision precision);

/// Makes the modules of layers that run one after another, each on the output of the previous one
/// only. Between an output layer and its loss, the rows of scores may be padded to a stride for
/// which products are fastest.
std::vector<std::unique_ptr<DeviceModule>> make_modules(std::span<const Operation> operations,
                                                        Precision precision);

/// Returns the input shape of module `number` of make_modules(), given its shape `dense` without
/// padding, samples included: if the rows are padded, the last dimension is their stride.
nn::Shape taken_shape(std::span<const Operation> operations, std::size_t number, nn::Shape dense,
                      Precision precision);

/// The maximum workspace of a matrix product. Recommended for Hopper, and sufficient for earlier
/// GPUs (cuBLAS documentation, "cublasSetWorkspace").
inline constexpr Bytes kProductWorkspace{std::int64_t{32} << 20};

/// Returns an upper bound on the memory that a module temporarily allocates from the arena, besides
/// tensors that are passed to it, returned or stashed, for an input of this shape, samples
/// included.
Bytes workspace_of(const Operation& operation, const nn::Shape& input, Precision precision);

}  // namespace dapple::cuda
