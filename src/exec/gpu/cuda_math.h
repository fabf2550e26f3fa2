// The computations of a device's stages on a GPU: all of them are enqueued on one stream, in the
// order in which they are requested. The functions are documented in CpuMath.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/cuda/modules/module.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "dapple/exec/message/payload.h"
#include "dapple/exec/train/training_job.h"
#include "exec/gpu/cuda_arrays.h"
#include "exec/gpu/cuda_device.h"
#include "exec/gpu/cuda_group.h"
#include "exec/gpu/cuda_range.h"
#include "exec/train/loss_scale.h"

namespace dapple::exec {

class CudaMath {
 public:
  static constexpr Memory kMemory = Memory::Device;

  using Tensor = cuda::DeviceTensor;
  using Stash = cuda::DeviceStash;
  using ParameterView = cuda::View;
  using Numbers = cuda::View;
  using Whole = cuda::DeviceTensor;
  using Parameters = cuda::Parameters;
  using Gradients = cuda::Gradients;
  using Arrays = CudaArrays;
  using Range = CudaRange;

  CudaMath(const TrainingJob& job, const TrainingDevice& device, int gpu);

  void begin() {
    loss_scale_.begin();
    on_gpu_.begin();
  }
  Mark mark(Stream stream) { return on_gpu_.mark(stream); }
  std::int64_t moment_of(const Mark& mark) { return on_gpu_.moment_of(mark); }

  static Bytes size_of(const Tensor& tensor) { return tensor.memory.size(); }
  static Bytes size_of(const Stash& stash) { return cuda::size_of(stash); }

  Tensor make_tensor(nn::Shape shape) {
    return cuda::make_tensor(device_, std::move(shape), type());
  }
  Tensor zeros(nn::Shape shape);
  Tensor copy_of(const Tensor& tensor);
  void take_in(Tensor& tensor, SampleRange samples, Payload payload);
  Payload give_out(const Tensor& tensor, SampleRange samples);
  Payload give_out(Tensor&& tensor) { return on_gpu_.give_out(std::move(tensor.memory)); }
  static std::int64_t count_of(const Tensor& tensor) { return tensor.count(); }
  void take_in(const Tensor& tensor, ElementRange numbers, Payload payload);
  Payload give_out(const Tensor& tensor, ElementRange numbers);
  void gather_shares(nn::RankGroup& group, const Tensor& tensor, ElementRange all,
                     ElementRange own) {
    on_device(group).all_gather(part(tensor.view(), own), part(tensor.view(), all));
  }
  void copy_samples(const Tensor& from, SampleRange samples, Tensor& to, SampleRange places);

  Tensor input(const nn::Tensor& numbers) {
    return cuda::to_device(device_, numbers, takes_tokens_ ? cuda::Type::Int32 : type());
  }
  Tensor targets(const nn::Tensor& numbers) {
    return cuda::to_device(device_, numbers, cuda::Type::Int32);
  }
  std::vector<float> on_host(const Tensor& tensor) { return cuda::to_host(device_, tensor).values; }
  Tensor loss_gradient(std::int64_t samples, float share);

  Tensor forward(std::int32_t layer, Parameters parameters, Tensor input, const Tensor& targets,
                 Stash& stash) {
    return module(layer).forward(device_, parameters, std::move(input), targets, stash);
  }
  Tensor input_gradient(std::int32_t layer, Parameters parameters, Tensor output_gradient,
                        Stash& stash) {
    return module(layer).input_gradient(device_, parameters, std::move(output_gradient), stash);
  }
  void weight_gradient(std::int32_t layer, Stash& stash, Gradients sums) {
    module(layer).weight_gradient(device_, stash, sums);
  }

  void sum(nn::RankGroup& group, Numbers gradients) { on_device(group).all_reduce(gradients); }
  // What gradients and parameters are sent of in these functions is written again only once it has
  // been read, as each rank ends with its own part of a sum, or with what all ranks have sent.
  void scatter(nn::RankGroup& group, Numbers all, Numbers own) {
    on_device(group).reduce_scatter(all, own, CudaGroupBuffer::Sent::InPlace);
  }
  void gather(nn::RankGroup& group, ParameterView own, Numbers all) {
    on_device(group).all_gather(own, all, CudaGroupBuffer::Sent::InPlace);
  }
  void gather_whole(nn::RankGroup& group, ParameterView own, const Whole& all) {
    on_device(group).all_gather(own, all.view());
  }
  void copy_whole(ParameterView own, const Whole& all) { copy(own, all.view()); }
  void add_shard(nn::RankGroup& group, Numbers all, Numbers sum);
  void add(Numbers all, Numbers sum);
  Whole make_whole_parameters(std::size_t count) {
    return make_tensor({static_cast<std::int64_t>(count)});
  }
  Whole make_whole_gradients(std::size_t count);
  static Numbers numbers_in(const Whole& whole) { return whole.view(); }
  static Numbers part(const Numbers& numbers, ElementRange range) {
    return numbers.part(static_cast<std::int64_t>(range.begin),
                        static_cast<std::int64_t>(range.end));
  }

  nn::Tensor to_host(const Tensor& tensor) { return cuda::to_host(device_, tensor); }
  Tensor from_host(const nn::Tensor& tensor) { return cuda::to_device(device_, tensor, type()); }

  std::unique_ptr<ReductionBuffer> buffer(Numbers gradients, std::vector<Numbers> others) {
    return on_gpu_.buffer(gradients, std::move(others));
  }
  void await_reductions() { on_gpu_.await_reductions(); }
  void copy(Numbers from, Numbers to);

  double tolerance() const {
    if (type() == cuda::Type::Float32) return 1e-4;
    return has_single_kernels_ ? 5e-2 : 2e-2;
  }
  bool scales_loss() const { return loss_scale_.is_dynamic(); }
  bool accepts_gradients(bool are_finite) { return loss_scale_.accepts(are_finite); }

  cuda::Device& device() { return device_; }
  /// Returns the type of activations and working copies.
  cuda::Type type() const { return cuda::type_of(precision_); }
  /// Returns the factor by which gradients are multiplied.
  float loss_scale() const { return loss_scale_.factor(); }

 private:
  const cuda::DeviceModule& module(std::int32_t layer) const {
    return *modules_[static_cast<std::size_t>(layer)];
  }
  /// Returns a group of the device's ranks as one on the device.
  CudaGroup& on_device(nn::RankGroup& group);
  cuda::DeviceRank on_device(const nn::LayerRank& rank);
  Payload give_out_copy(const Numbers& numbers);
  void make_modules(const TrainingJob& job, const TrainingDevice& device);

  const cuda::Precision precision_;
  const bool takes_tokens_;
  // Whether some block of the model runs as single kernels on some rank, each of which rounds what
  // it passes on.
  const bool has_single_kernels_;
  CudaDevice on_gpu_;
  // The memory of `on_gpu_`.
  cuda::Device& device_;
  LossScale loss_scale_;
  std::map<const nn::RankGroup*, CudaGroup> groups_;
  // Indexed by layer; null for the layers of other devices.
  std::vector<std::unique_ptr<cuda::DeviceModule>> modules_;
};

}  // namespace dapple::exec
