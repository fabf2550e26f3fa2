#include <utility>

#include "cuda/kernels/layers/cross_entropy.h"
#include "cuda/modules/modules.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

class SoftmaxCrossEntropy : public DeviceModuleWithoutParameters {
 public:
  explicit SoftmaxCrossEntropy(const SoftmaxCrossEntropyOperation& operation)
      : classes_(operation.classes) {}

  DeviceTensor forward(Device& device, Parameters, DeviceTensor input, const DeviceTensor& targets,
                       DeviceStash& stash) const override {
    DeviceTensor losses = make_tensor(device, {input.samples()}, Type::Float32);
    DeviceTensor kept = make_tensor(device, targets.shape, targets.type);
    copy(device.compute(), targets.view(), kept.view());
    DeviceTensor log_sums = make_tensor(device, {targets.count()}, Type::Float32);
    cross_entropy(device, arrays_of(input, kept, log_sums), losses.view());
    stash.tensors.push_back(std::move(input));
    stash.tensors.push_back(std::move(kept));
    stash.tensors.push_back(std::move(log_sums));
    return losses;
  }

  /// The gradients of the scores overwrite the scores.
  DeviceTensor input_gradient(Device& device, Parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    DeviceTensor gradient = std::move(stash.tensors[0]);
    cross_entropy_gradient(device.compute(),
                           arrays_of(gradient, stash.tensors[1], stash.tensors[2]),
                           output_gradient.view());
    stash.tensors.clear();
    return gradient;
  }

 private:
  CrossEntropy arrays_of(const DeviceTensor& scores, const DeviceTensor& targets,
                         const DeviceTensor& log_sums) const {
    return {.classes = classes_,
            .stride = scores.shape.back(),
            .scores = scores.view(),
            .targets = targets.view(),
            .log_sums = log_sums.view()};
  }

  std::int64_t classes_;
};

}  // namespace

std::unique_ptr<DeviceModule> make_softmax_cross_entropy(
    const SoftmaxCrossEntropyOperation& operation) {
  return std::make_unique<SoftmaxCrossEntropy>(operation);
}

}  // namespace dapple::cuda
