#include <utility>

#include "cuda/kernels/layers/layer_norm.h"
#include "cuda/modules/modules.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

class LayerNorm : public DeviceModule {
 public:
  explicit LayerNorm(const LayerNormOperation& operation) : hidden_(operation.hidden) {}

  std::size_t parameter_count() const override { return 2; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor&, DeviceStash& stash) const override {
    DeviceTensor output = make_tensor(device, input.shape, input.type);
    DeviceTensor statistics = make_tensor(device, {2, input.count() / hidden_}, Type::Float32);
    normalise(device.compute(), {.columns = hidden_,
                                 .input = input.view(),
                                 .scale = parameters[0],
                                 .shift = parameters[1],
                                 .output = output.view(),
                                 .statistics = row_statistics(statistics)});
    stash.tensors.push_back(std::move(input));
    stash.tensors.push_back(std::move(statistics));
    return output;
  }

  /// Leaves in the stash only the parameters' gradients of this batch.
  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    const DeviceTensor& input = stash.tensors[0];
    DeviceTensor gradient = make_tensor(device, input.shape, input.type);
    DeviceTensor sums = make_tensor(device, {2, hidden_}, Type::Float32);
    normalise_backward(device, {.columns = hidden_,
                                .input = input.view(),
                                .scale = parameters[0],
                                .statistics = row_statistics(stash.tensors[1]),
                                .output_gradient = output_gradient.view(),
                                .input_gradient = gradient.view(),
                                .sums = sums.view()});
    stash.tensors.clear();
    stash.tensors.push_back(std::move(sums));
    return gradient;
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    add_pieces(device.compute(), stash.tensors[0].view(), sums);
    stash.tensors.clear();
  }

 private:
  std::int64_t hidden_;
};

}  // namespace

RowStatistics row_statistics(const DeviceTensor& tensor) {
  const View numbers = tensor.view();
  const std::int64_t rows = tensor.shape[1];
  return {numbers.part(0, rows), numbers.part(rows, 2 * rows)};
}

std::unique_ptr<DeviceModule> make_layer_norm(const LayerNormOperation& operation) {
  return std::make_unique<LayerNorm>(operation);
}

}  // namespace dapple::cuda
