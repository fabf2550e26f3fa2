#include <utility>

#include "cuda/kernels/layers/cross_entropy.h"
#include "cuda/modules/modules.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

class SoftmaxCrossEntropy : public WithoutParameters {
 public:
  explicit SoftmaxCrossEntropy(const SoftmaxCrossEntropyOperation& operation)
      : classes_(operation.classes) {}

  Tensor forward(Device& device, Parameters, Tensor input, const Tensor& targets,
                 Stash& stash) const override {
    Tensor losses = make_tensor(device, {input.samples()}, Type::Float32);
    Tensor kept = make_tensor(device, targets.shape, targets.type);
    copy(device.compute(), targets.view(), kept.view());
    Tensor log_sums = make_tensor(device, {targets.count()}, Type::Float32);
    cross_entropy(device, arrays_of(input, kept, log_sums), losses.view());
    stash.tensors.push_back(std::move(input));
    stash.tensors.push_back(std::move(kept));
    stash.tensors.push_back(std::move(log_sums));
    return losses;
  }

  /// The scores' gradients take their place.
  Tensor input_gradient(Device& device, Parameters, Tensor output_gradient,
                        Stash& stash) const override {
    Tensor gradient = std::move(stash.tensors[0]);
    cross_entropy_gradient(device.compute(),
                           arrays_of(gradient, stash.tensors[1], stash.tensors[2]),
                           output_gradient.view());
    stash.tensors.clear();
    return gradient;
  }

 private:
  CrossEntropy arrays_of(const Tensor& scores, const Tensor& targets,
                         const Tensor& log_sums) const {
    return {.classes = classes_,
            .stride = scores.shape.back(),
            .scores = scores.view(),
            .targets = targets.view(),
            .log_sums = log_sums.view()};
  }

  std::int64_t classes_;
};

}  // namespace

std::unique_ptr<Module> make_softmax_cross_entropy(const SoftmaxCrossEntropyOperation& operation) {
  return std::make_unique<SoftmaxCrossEntropy>(operation);
}

}  // namespace dapple::cuda
