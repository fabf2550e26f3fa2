#include <utility>

#include "cuda/kernels/layers/embedding.h"
#include "cuda/modules/modules.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

class Embedding : public DeviceModule {
 public:
  Embedding(const EmbeddingOperation& operation, Type type) : operation_(operation), type_(type) {}

  std::size_t parameter_count() const override { return operation_.positions ? 2 : 1; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor&, DeviceStash& stash) const override {
    DeviceTensor output =
        make_tensor(device, {input.samples(), operation_.sequence, operation_.hidden}, type_);
    look_up(device.compute(), {.hidden = operation_.hidden,
                               .tokens = input.view(),
                               .table = parameters[0],
                               .positions = operation_.positions ? parameters[1] : View{},
                               .output = output.view()});
    stash.tensors.push_back(std::move(input));
    return output;
  }

  DeviceTensor input_gradient(Device&, Parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    stash.tensors.push_back(std::move(output_gradient));
    return {};
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    const View gradient = stash.tensors[1].view();
    add_token_gradients(device.compute(), {.hidden = operation_.hidden,
                                           .tokens = stash.tensors[0].view(),
                                           .gradient = gradient,
                                           .sums = sums[0]});
    if (operation_.positions) add_position_gradients(device.compute(), gradient, sums[1]);
    stash.tensors.clear();
  }

 private:
  EmbeddingOperation operation_;
  Type type_;
};

class PositionEmbedding : public DeviceModule {
 public:
  std::size_t parameter_count() const override { return 1; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor&, DeviceStash&) const override {
    add_positions(device.compute(), parameters[0], input.view());
    return input;
  }

  DeviceTensor input_gradient(Device& device, Parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    DeviceTensor gradient = make_tensor(device, output_gradient.shape, output_gradient.type);
    copy(device.compute(), output_gradient.view(), gradient.view());
    stash.tensors.push_back(std::move(output_gradient));
    return gradient;
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    add_position_gradients(device.compute(), stash.tensors[0].view(), sums[0]);
    stash.tensors.clear();
  }
};

}  // namespace

std::unique_ptr<DeviceModule> make_embedding(const EmbeddingOperation& operation, Type type) {
  return std::make_unique<Embedding>(operation, type);
}

std::unique_ptr<DeviceModule> make_position_embedding() {
  return std::make_unique<PositionEmbedding>();
}

}  // namespace dapple::cuda
