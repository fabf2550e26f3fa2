#include <utility>

#include "cuda/kernels/layers/layer_norm.h"
#include "cuda/modules/modules.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

class Norm : public DeviceModule {
 public:
  Norm(NormKind kind, std::int64_t hidden) : kind_(kind), hidden_(hidden) {}

  std::size_t parameter_count() const override { return kind_ == NormKind::LayerNorm ? 2 : 1; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor&, DeviceStash& stash) const override {
    DeviceTensor output = make_tensor(device, input.shape, input.type);
    DeviceTensor statistics = make_tensor(device, {2, input.count() / hidden_}, Type::Float32);
    normalise(device.compute(), {.kind = kind_,
                                 .columns = hidden_,
                                 .input = input.view(),
                                 .scale = parameters[0],
                                 .shift = parameters.size() > 1 ? parameters[1] : View{},
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
    normalise_backward(device, {.kind = kind_,
                                .columns = hidden_,
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
    const auto count = static_cast<std::int64_t>(sums.size()) * hidden_;
    add_pieces(device.compute(), stash.tensors[0].view().part(0, count), sums);
    stash.tensors.clear();
  }

 private:
  NormKind kind_;
  std::int64_t hidden_;
};

}  // namespace

RowStatistics row_statistics(const DeviceTensor& tensor) {
  const View numbers = tensor.view();
  const std::int64_t rows = tensor.shape[1];
  return {numbers.part(0, rows), numbers.part(rows, 2 * rows)};
}

std::unique_ptr<DeviceModule> make_layer_norm(const LayerNormOperation& operation) {
  return std::make_unique<Norm>(NormKind::LayerNorm, operation.hidden);
}

std::unique_ptr<DeviceModule> make_rms_norm(const RmsNormOperation& operation) {
  return std::make_unique<Norm>(NormKind::RmsNorm, operation.hidden);
}

}  // namespace dapple::cuda
