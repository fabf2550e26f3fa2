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

/// Returns how a rank runs a layer, given the parts of it that are computed again.
nn::LayerRank with_recomputed(nn::LayerRank rank, RecomputedParts parts) {
  rank.recomputes = parts;
  return rank;
}

bool has_single_kernels(const TrainingJob& job, const TrainingDevice& device) {
  for (std::size_t s = 0; s < job.plan.stages.size(); ++s) {
    const StagePlan& stage = job.plan.stages[s];
    const std::vector<RecomputedParts> recomputed =
        recomputed_by_layer(job, index_at<StageIndex>(s));
    for (std::int32_t layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
      const auto* block = std::get_if<TransformerBlockOperation>(&job.layer(layer).operation);
      const auto place = static_cast<std::size_t>(layer - stage.layers.begin);
      const nn::LayerRank rank = with_recomputed(device.in(stage.form).layers, recomputed[place]);
      if (block != nullptr && !cuda::is_fused(*block, rank)) return true;
    }
  }
  return false;
}

}  // namespace

CudaMath::CudaMath(const TrainingJob& job, const TrainingDevice& device, int gpu)
    : precision_(job.settings.precision),
      takes_tokens_(std::holds_alternative<EmbeddingOperation>(job.layer(0).operation)),
      has_single_kernels_(has_single_kernels(job, device)),
      on_gpu_(gpu, cuda_memory(job, device).total()),
      device_(on_gpu_.memory()),
      loss_scale_(precision_ == cuda::Precision::Float16) {
  make_modules(job, device);
}

void CudaMath::make_modules(const TrainingJob& job, const TrainingDevice& device) {
  modules_.resize(job.layers->size());
  for (std::size_t s = 0; s < job.plan.stages.size(); ++s) {
    const auto own = local_stage(job, index_at<StageIndex>(s), device);
    if (!own) continue;
    const LayerRange layers = own->plan.layers;
    std::vector<Operation> operations;
    for (std::int32_t layer = layers.begin; layer < layers.end; ++layer) {
      operations.push_back(job.layer(layer).operation);
    }
    const nn::LayerRank& rank = device.in(own->plan.form).layers;
    auto modules = rank.runs_whole_layers()
                       ? cuda::make_modules(operations, precision_)
                       : cuda::make_shared_modules(operations, recomputed_by_layer(job, own->index),
                                                   on_device(rank), precision_);
    std::ranges::move(modules, modules_.begin() + layers.begin);
  }
}

CudaGroup& CudaMath::on_device(nn::RankGroup& group) {
  return groups_.try_emplace(&group, on_gpu_, collectives_of(group)).first->second;
}

cuda::DeviceRank CudaMath::on_device(const nn::LayerRank& rank) {
  cuda::DeviceRank own{.layers = rank};
  if (rank.tensor.group != nullptr) own.tensor = &on_device(*rank.tensor.group);
  if (rank.context.group != nullptr) own.context = &on_device(*rank.context.group);
  if (rank.experts.group != nullptr) own.experts = &on_device(*rank.experts.group);
  if (rank.expert_tensor.group != nullptr) {
    own.expert_tensor = &on_device(*rank.expert_tensor.group);
  }
  return own;
}

void CudaMath::add_shard(nn::RankGroup& group, Numbers all, Numbers sum) {
  const Whole own = cuda::make_tensor(device_, {sum.count}, cuda::Type::Float32);
  on_device(group).reduce_scatter(all, own.view());
  add(own.view(), sum);
}

void CudaMath::add(Numbers all, Numbers sum) {
  cuda::add(device_.compute(), all, sum);
}

cuda::DeviceTensor CudaMath::make_whole_gradients(std::size_t count) {
  Whole sums = cuda::make_tensor(device_, {static_cast<std::int64_t>(count)}, cuda::Type::Float32);
  cuda::fill_with_zeros(device_.compute(), sums.view());
  return sums;
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

void CudaMath::take_in(const Tensor& tensor, ElementRange numbers, Payload payload) {
  on_gpu_.take_in(std::move(payload), part(tensor.view(), numbers).bytes());
}

Payload CudaMath::give_out(const Tensor& tensor, SampleRange samples) {
  return give_out_copy(numbers_of(tensor, samples));
}

Payload CudaMath::give_out(const Tensor& tensor, ElementRange numbers) {
  return give_out_copy(part(tensor.view(), numbers));
}

Payload CudaMath::give_out_copy(const Numbers& numbers) {
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
