// Parameters, gradients and optimizer state of one stage in GPU memory. The functions are
// documented in CpuArrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

  /// Returns the working copies.
  cuda::View parameters(ElementRange range) const;
  /// Returns parameters in single precision.
  cuda::View replaced(ElementRange range) const;
  cuda::View gradients(ElementRange range) const;
  void clear_gradients();
  /// Does not modify the stored gradients; the factor is applied wherever they are read.
  void scale_gradients(float factor) { factor_ *= factor; }
  /// Waits for the gradients.
  std::vector<double> squares(const std::vector<ElementRange>& ranges);
  void update(ElementRange range, std::int64_t number);
  /// Runs every operation on parameters and gradients once, on a few zeros, and waits for it.
  void warm_up();
  std::span<const float> values(TensorKind kind);
  void assign(const TensorPlace& place, std::span<const float> values);
  void assign_state(const UpdatedPart& part, std::size_t number, std::span<const float> values);
  /// The buffer is over the parameters in single precision, not over the working copies.
  std::unique_ptr<ReductionBuffer> buffer(ElementRange range);
  void take_replaced(ElementRange range) { make_copies(range); }

 private:
  cuda::View zeros(std::size_t count, cuda::Type type, cuda::Buffer& memory);
  /// Returns the factor that converts a stored gradient to the gradient of the unscaled loss.
  float gradient_factor() const;
  /// Returns the position of a part's `number`th state array. The state arrays of each range that
  /// is updated at once are whole, one after another.
  std::size_t state_of(const UpdatedPart& part, std::size_t number) const;
  void make_copies(ElementRange range);

  CudaMath& math_;
  const StageLayout& layout_;
  const nn::OptimizerSettings optimizer_;
  // The number of optimizer state elements per parameter.
  const std::size_t states_;
  float factor_ = 1;
  cuda::Buffer master_memory_;
  cuda::Buffer copy_memory_;
  cuda::Buffer gradient_memory_;
  cuda::Buffer state_memory_;
  cuda::View masters_;
  // Empty in single precision.
  cuda::View copies_;
  cuda::View gradients_;
  cuda::View state_;
  std::vector<float> on_host_;
};

}  // namespace dapple::exec
