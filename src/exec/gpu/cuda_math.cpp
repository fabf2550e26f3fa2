#include "exec/gpu/cuda_math.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"
#include "exec/train/local_stage.h"

namespace dapple::exec {
namespace {

/// Returns the elements of a range of samples of a tensor.
cuda::View numbers_of(const cuda::DeviceTensor& tensor, SampleRange samples) {
  const std::int64_t each = tensor.count() / std::max<std::int64_t>(1, tensor.samples());
  return tensor.view().part(samples.begin * each, samples.end * each);
}

bool has_single_kernels(const std::vector<nn::ModelLayer>& layers) {
  return std::ranges::any_of(layers, [](const nn::ModelLayer& layer) {
    const auto* block = std::get_if<TransformerBlockOperation>(&layer.operation);
    return block != nullptr && !is_gpt2_block(*block);
  });
}

}  // namespace

CudaMath::CudaMath(const TrainingJob& job, DeviceIndex device, int gpu)
    : precision_(job.settings.precision),
      takes_tokens_(std::holds_alternative<EmbeddingOperation>(job.layer(0).operation)),
      has_single_kernels_(has_single_kernels(*job.layers)),
      on_gpu_(gpu, cuda_memory(job, device).total()),
      device_(on_gpu_.memory()),
      loss_scale_(precision_ == cuda::Precision::Float16) {
  check(job.ranks() == 1, "a GPU is in a group");
  modules_.resize(job.layers->size());
  for (std::size_t s = 0; s < job.plan.stages.size(); ++s) {
    const auto own = local_stage(job, index_at<StageIndex>(s), device);
    if (!own) continue;
    const LayerRange layers = own->plan.layers;
    std::vector<Operation> operations;
    for (std::int32_t layer = layers.begin; layer < layers.end; ++layer) {
      operations.push_back(job.layer(layer).operation);
    }
    std::ranges::move(cuda::make_modules(operations, precision_), modules_.begin() + layers.begin);
  }
}

cuda::DeviceTensor CudaMath::zeros(nn::Shape shape) {
  Tensor tensor = make_tensor(std::move(shape));
  cuda::fill_with_zeros(device_.compute(), tensor.view());
  return tensor;
}

cuda::DeviceTensor CudaMath::copy_of(const Tensor& tensor) {
  Tensor copy = cuda::make_tensor(device_, tensor.shape, tensor.type);
  cuda::copy(device_.compute(), tensor.view(), copy.view());
  return copy;
}

void CudaMath::take_in(Tensor& tensor, SampleRange samples, Payload payload) {
  on_gpu_.take_in(std::move(payload), numbers_of(tensor, samples).bytes());
}

Payload CudaMath::give_out(const Tensor& tensor, SampleRange samples) {
  const cuda::View numbers = numbers_of(tensor, samples);
  cuda::Buffer memory = device_.allocate(numbers.size());
  cuda::copy(device_.compute(), numbers, {memory.address(), numbers.type, numbers.count});
  return on_gpu_.give_out(std::move(memory));
}

void CudaMath::copy_samples(const Tensor& from, SampleRange samples, Tensor& to,
                            SampleRange places) {
  copy(numbers_of(from, samples), numbers_of(to, places));
}

cuda::DeviceTensor CudaMath::loss_gradient(std::int64_t samples, float share) {
  const nn::Tensor shares{
      .shape = {samples},
      .values = std::vector<float>(static_cast<std::size_t>(samples), share * loss_scale())};
  return cuda::to_device(device_, shares, cuda::Type::Float32);
}

void CudaMath::copy(Numbers from, Numbers to) {
  cuda::copy(device_.compute(), from, to);
}

}  // namespace dapple::exec
