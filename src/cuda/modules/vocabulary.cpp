// Embeddings and losses of which each rank has an equal part of the vocabulary.
#include <algorithm>
#include <utility>

#include "cuda/kernels/layers/cross_entropy.h"
#include "cuda/kernels/layers/embedding.h"
#include "cuda/kernels/layers/sequence_parts.h"
#include "cuda/modules/modules.h"
#include "cuda/modules/shared_modules.h"
#include "dapple/core/quantity.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

/// A token of another rank's part has a vector of zeros here; the sum over the ranks is the whole
/// layer's output.
class VocabularyParallelEmbedding : public DeviceModule {
 public:
  VocabularyParallelEmbedding(const EmbeddingOperation& whole, const TensorGroup& tensor, Type type)
      : operation_(whole),
        tensor_(tensor),
        type_(type),
        first_(tensor.rank * divide_up(whole.vocabulary, tensor.ranks)) {}

  std::size_t parameter_count() const override { return 1; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor&, DeviceStash& stash) const override {
    DeviceTensor output =
        make_tensor(device, {input.samples(), operation_.sequence, operation_.hidden}, type_);
    look_up(device.compute(), {.hidden = operation_.hidden,
                               .first_token = first_,
                               .tokens = input.view(),
                               .table = parameters[0],
                               .positions = {},
                               .output = output.view()});
    stash.tensors.push_back(std::move(input));
    return sum_of_ranks(device, std::move(output), tensor_);
  }

  DeviceTensor input_gradient(Device& device, Parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    stash.tensors.push_back(tensor_.is_sequence_parallel
                                ? gather_sequences(device, output_gradient, tensor_)
                                : std::move(output_gradient));
    return {};
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    add_token_gradients(device.compute(), {.hidden = operation_.hidden,
                                           .first_token = first_,
                                           .tokens = stash.tensors[0].view(),
                                           .gradient = stash.tensors[1].view(),
                                           .sums = sums[0]});
    stash.tensors.clear();
  }

 private:
  EmbeddingOperation operation_;
  TensorGroup tensor_;
  Type type_;
  std::int64_t first_;
};

class VocabularyParallelCrossEntropy : public DeviceModuleWithoutParameters {
 public:
  VocabularyParallelCrossEntropy(const SoftmaxCrossEntropyOperation& whole,
                                 const TensorGroup& tensor)
      : tensor_(tensor),
        width_(divide_up(whole.classes, tensor.ranks)),
        first_(tensor.rank * width_),
        used_(std::clamp<std::int64_t>(whole.classes - first_, 0, width_)) {}

  DeviceTensor forward(Device& device, Parameters, DeviceTensor input, const DeviceTensor& targets,
                       DeviceStash& stash) const override {
    DeviceTensor losses = make_tensor(device, {input.samples()}, Type::Float32);
    DeviceTensor kept = make_tensor(device, targets.shape, targets.type);
    copy(device.compute(), targets.view(), kept.view());
    stash.tensors.push_back(std::move(input));
    stash.tensors.push_back(std::move(kept));
    stash.tensors.push_back(make_tensor(device, {targets.count()}, Type::Float32));
    const std::int64_t numbers = kNumbersOfRowPart * targets.count();
    const DeviceTensor own = make_tensor(device, {numbers}, Type::Float32);
    const DeviceTensor all = make_tensor(device, {tensor_.ranks, numbers}, Type::Float32);
    const CrossEntropy arrays = arrays_of(stash.tensors[kLossScores], stash);
    cross_entropy_part(device.compute(), arrays, own.view());
    tensor_.group->all_gather(own.view(), all.view());
    join_cross_entropy(device, arrays, all.view(), losses.view());
    return losses;
  }

  DeviceTensor input_gradient(Device& device, Parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    DeviceTensor gradient = std::move(stash.tensors[kLossScores]);
    if (used_ > 0) {
      cross_entropy_gradient(device.compute(), arrays_of(gradient, stash), output_gradient.view());
    }
    stash.tensors.clear();
    return used_ == width_ ? std::move(gradient) : without_padding(device, gradient);
  }

 private:
  /// The tensors that the loss keeps.
  enum : std::size_t { kLossScores, kLossTargets, kLossLogSums };

  CrossEntropy arrays_of(const DeviceTensor& scores, const DeviceStash& stash) const {
    return {.classes = used_,
            .first_class = first_,
            .stride = width_,
            .scores = scores.view(),
            .targets = stash.tensors[kLossTargets].view(),
            .log_sums = stash.tensors[kLossLogSums].view()};
  }

  /// Returns the gradients with zeros for what is no class.
  DeviceTensor without_padding(Device& device, const DeviceTensor& gradient) const {
    DeviceTensor padded = make_tensor(device, gradient.shape, gradient.type);
    fill_with_zeros(device.compute(), padded.view());
    if (used_ == 0) return padded;
    copy_columns(device.compute(), {.rows = gradient.count() / width_,
                                    .columns = used_,
                                    .from = gradient.view(),
                                    .from_stride = width_,
                                    .to = padded.view(),
                                    .to_stride = width_});
    return padded;
  }

  TensorGroup tensor_;
  std::int64_t width_;
  std::int64_t first_;
  std::int64_t used_;  // without padding
};

}  // namespace

std::unique_ptr<DeviceModule> make_vocabulary_parallel_embedding(const EmbeddingOperation& whole,
                                                                 const TensorGroup& tensor,
                                                                 Type type) {
  return std::make_unique<VocabularyParallelEmbedding>(whole, tensor, type);
}

std::unique_ptr<DeviceModule> make_vocabulary_parallel_cross_entropy(
    const SoftmaxCrossEntropyOperation& whole, const TensorGroup& tensor) {
  return std::make_unique<VocabularyParallelCrossEntropy>(whole, tensor);
}

}  // namespace dapple::cuda
