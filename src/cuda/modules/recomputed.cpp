#include <utility>

#include "cuda/modules/modules.h"
#include "cuda/modules/shared_modules.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

class Recomputed : public DeviceModule {
 public:
  explicit Recomputed(std::unique_ptr<DeviceModule> module) : module_(std::move(module)) {}

  std::size_t parameter_count() const override { return module_->parameter_count(); }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor&, DeviceStash& stash) const override {
    DeviceTensor kept = make_tensor(device, input.shape, input.type);
    copy(device.compute(), input.view(), kept.view());
    stash.tensors.push_back(std::move(kept));
    DeviceStash dropped;
    return module_->forward(device, parameters, std::move(input), {}, dropped);
  }

  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    DeviceTensor input = std::move(stash.tensors.front());
    stash.tensors.clear();
    DeviceStash& again = stash.parts.emplace_back();
    module_->forward(device, parameters, std::move(input), {}, again);
    return module_->input_gradient(device, parameters, std::move(output_gradient), again);
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    module_->weight_gradient(device, stash.parts.front(), sums);
    stash.parts.clear();
  }

 private:
  std::unique_ptr<DeviceModule> module_;
};

}  // namespace

std::unique_ptr<DeviceModule> make_recomputed(std::unique_ptr<DeviceModule> module) {
  return std::make_unique<Recomputed>(std::move(module));
}

}  // namespace dapple::cuda
