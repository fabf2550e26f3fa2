// Linear layers of which each rank has some of the outputs, or of the inputs.
#include <utility>

#include "cuda/kernels/column_sums.h"
#include "cuda/kernels/layers/embedding.h"
#include "cuda/modules/modules.h"
#include "cuda/modules/shared_modules.h"

namespace dapple::cuda {
namespace {

/// The tensors in the stash of a linear layer.
struct KeptByLinear {
  enum : std::size_t { kInput, kOutputGradient, kOwnOutputGradient };
};

/// Keeps the rank's input, which with sequence parallelism is gathered again for the weight
/// gradient.
class ColumnParallel : public DeviceModule {
 public:
  ColumnParallel(const LinearOperation& own, const TensorGroup& tensor)
      : of_rank_(make_linear(own)), tensor_(tensor) {}

  std::size_t parameter_count() const override { return of_rank_->parameter_count(); }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor& targets, DeviceStash& stash) const override {
    if (!tensor_.is_sequence_parallel) {
      return of_rank_->forward(device, parameters, std::move(input), targets, stash);
    }
    DeviceTensor output = of_rank_->forward(
        device, parameters, gather_sequences(device, input, tensor_), targets, stash);
    stash.tensors[KeptByLinear::kInput] = std::move(input);
    return output;
  }

  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    return sum_of_ranks(
        device, of_rank_->input_gradient(device, parameters, std::move(output_gradient), stash),
        tensor_);
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    if (tensor_.is_sequence_parallel) {
      stash.tensors[KeptByLinear::kInput] =
          gather_sequences(device, stash.tensors[KeptByLinear::kInput], tensor_);
    }
    of_rank_->weight_gradient(device, stash, sums);
  }

 private:
  std::unique_ptr<DeviceModule> of_rank_;
  TensorGroup tensor_;
};

LinearOperation of_rank(LinearOperation whole, const TensorGroup& tensor) {
  whole.inputs /= tensor.ranks;
  whole.bias = false;
  return whole;
}

/// The bias is added to the sum over the ranks, by each of them.
class RowParallel : public DeviceModule {
 public:
  RowParallel(const LinearOperation& whole, const TensorGroup& tensor)
      : of_rank_(make_linear(of_rank(whole, tensor))), has_bias_(whole.bias), tensor_(tensor) {}

  std::size_t parameter_count() const override { return has_bias_ ? 2 : 1; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor& targets, DeviceStash& stash) const override {
    DeviceTensor output = sum_of_ranks(
        device, of_rank_->forward(device, parameters.first(1), std::move(input), targets, stash),
        tensor_);
    if (has_bias_) add_positions(device.compute(), parameters[1], output.view());
    return output;
  }

  /// With sequence parallelism the bias was added to the rank's part of the sequences, whose
  /// gradient is kept too.
  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    if (!tensor_.is_sequence_parallel) {
      return of_rank_->input_gradient(device, parameters.first(1), std::move(output_gradient),
                                      stash);
    }
    DeviceTensor gradient = of_rank_->input_gradient(
        device, parameters.first(1), gather_sequences(device, output_gradient, tensor_), stash);
    if (has_bias_) stash.tensors.push_back(std::move(output_gradient));
    return gradient;
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    if (has_bias_) {
      const bool is_of_part = stash.tensors.size() > KeptByLinear::kOwnOutputGradient;
      const DeviceTensor& gradient = stash.tensors[is_of_part ? KeptByLinear::kOwnOutputGradient
                                                              : KeptByLinear::kOutputGradient];
      add_column_sums(device, gradient.view(), sums[1]);
    }
    of_rank_->weight_gradient(device, stash, sums.first(1));
  }

 private:
  std::unique_ptr<DeviceModule> of_rank_;
  bool has_bias_;
  TensorGroup tensor_;
};

}  // namespace

std::unique_ptr<DeviceModule> make_column_parallel(const LinearOperation& own,
                                                   const TensorGroup& tensor) {
  return std::make_unique<ColumnParallel>(own, tensor);
}

std::unique_ptr<DeviceModule> make_row_parallel(const LinearOperation& whole,
                                                const TensorGroup& tensor) {
  return std::make_unique<RowParallel>(whole, tensor);
}

}  // namespace dapple::cuda
