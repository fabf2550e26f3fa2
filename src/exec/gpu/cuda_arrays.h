// Parameters, gradients and the optimizer's state of one stage in a GPU's memory; CpuArrays says
// what each function does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dapple/cuda/memory/tensor.h"
#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/train/named_tensors.h"
#include "dapple/nn/optimizer.h"
#include "exec/train/stage_layout.h"

namespace dapple::exec {

class CudaMath;

class CudaArrays {
 public:
  CudaArrays(CudaMath& math, const StageLayout& layout, const nn::OptimizerSettings& optimizer);

  /// Working copies.
  cuda::View parameters(ElementRange range) const;
  cuda::View gradients(ElementRange range) const;
  void clear_gradients();
  /// Not where they lie, but wherever they are read.
  void scale_gradients(float factor) { factor_ *= factor; }
  /// Waits for them.
  std::vector<double> squares(const std::vector<ElementRange>& ranges);
  void update(ElementRange range, std::int64_t number);
  /// Does to a few zeros what may be done to parameters and gradients. Waits for it.
  void warm_up();
  std::span<const float> values(TensorKind kind);
  void assign(const TensorPlace& place, TensorKind kind, std::size_t number,
              std::span<const float> values);

 private:
  cuda::View zeros(std::size_t count, cuda::Type type, cuda::Buffer& memory);
  /// What a gradient is multiplied by to be that of the loss.
  float gradient_factor() const;
  /// A tensor's `number`th array of the state: all arrays of what is stepped at a time lie
  /// together.
  std::size_t state_of(const TensorPlace& place, std::size_t number) const;

  CudaMath& math_;
  const StageLayout& layout_;
  const nn::OptimizerSettings optimizer_;
  const std::size_t states_;  // numbers of the optimizer's for each parameter
  float factor_ = 1;
  cuda::Buffer master_memory_;
  cuda::Buffer copy_memory_;
  cuda::Buffer gradient_memory_;
  cuda::Buffer state_memory_;
  cuda::View masters_;
  cuda::View copies_;  // none in single precision
  cuda::View gradients_;
  cuda::View state_;
  std::vector<float> on_host_;
};

}  // namespace dapple::exec
