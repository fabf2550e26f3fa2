// The mathematics of a device's stages on the CPU, in single precision and in the calling thread:
// every function is done when it returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dapple/exec/run/backend.h"
#include "dapple/exec/train/named_tensors.h"
#include "dapple/exec/train/training_job.h"
#include "exec/message/clock.h"
#include "exec/train/stage_layout.h"

namespace dapple::exec {

/// Parameters, gradients and the optimizer's state of one stage.
class CpuArrays;

class CpuMath {
 public:
  static constexpr Memory kMemory = Memory::Host;

  using Tensor = nn::Tensor;
  using Stash = nn::Stash;
  using ParameterView = std::span<const float>;
  using Numbers = std::span<float>;  // some gradients
  using Parameters = nn::Parameters;
  using Gradients = nn::Gradients;
  using Arrays = CpuArrays;
  /// Lives while an action is computed.
  struct Range {
    explicit Range(const Action& /*action*/) {}
  };

  explicit CpuMath(const TrainingJob& job) : job_(job) {}

  /// Of an iteration.
  void begin() {}
  Mark mark(Stream /*stream*/) { return {monotonic_now()}; }
  std::int64_t moment_of(const Mark& mark) { return mark.moment; }

  static Bytes size_of(const Tensor& tensor) {
    return {static_cast<std::int64_t>(tensor.values.size() * sizeof(float))};
  }
  static Bytes size_of(const Stash& stash) { return nn::size_of(stash); }

  /// Room for activations, or gradients of them, that come piece by piece.
  Tensor make_tensor(nn::Shape shape) { return nn::zeros(std::move(shape)); }
  Tensor copy_of(const Tensor& tensor) { return tensor; }
  /// Samples of a tensor, counted from its first, from and to other devices.
  void take_in(Tensor& tensor, SampleRange samples, Payload payload);
  Payload give_out(const Tensor& tensor, SampleRange samples);
  Payload give_out(Tensor&& tensor);
  /// Requires: as many of both.
  void copy_samples(const Tensor& from, SampleRange samples, Tensor& to, SampleRange places);

  /// What goes into the model, and the right answers.
  Tensor input(nn::Tensor numbers) { return numbers; }
  Tensor targets(nn::Tensor numbers) { return numbers; }
  std::vector<float> on_host(const Tensor& tensor) { return tensor.values; }
  /// Of a loss's output: one number for each sample.
  Tensor loss_gradient(std::int64_t samples, float share);

  /// As those of the layer's module.
  Tensor forward(std::int32_t layer, Parameters parameters, Tensor input, const Tensor& targets,
                 Stash& stash) {
    return job_.layer(layer).module->forward(parameters, std::move(input), targets, stash);
  }
  Tensor input_gradient(std::int32_t layer, Parameters parameters, Tensor output_gradient,
                        Stash& stash) {
    return job_.layer(layer).module->input_gradient(parameters, std::move(output_gradient), stash);
  }
  void weight_gradient(std::int32_t layer, Stash& stash, Gradients sums) {
    job_.layer(layer).module->weight_gradient(stash, sums);
  }

  /// Gradients that are complete, to be reduced in another thread: once `others` have been added.
  std::unique_ptr<ReductionBuffer> buffer(Numbers gradients, std::vector<Numbers> others);
  /// Has what comes next wait for all reductions that are over in their threads.
  void await_reductions() {}
  void copy(Numbers from, Numbers to);

  /// Of gradients and losses, relative to those of one CPU.
  double tolerance() const { return 1e-5; }

  /// Whether the loss is multiplied by something that depends on the gradients before; then they
  /// are asked about, and false means that they are to be thrown away.
  bool scales_loss() const { return false; }
  bool accepts_gradients(bool /*are_finite*/) { return true; }

 private:
  const TrainingJob& job_;
};

class CpuArrays {
 public:
  /// All zero. The layout must outlive it.
  CpuArrays(CpuMath& math, const StageLayout& layout, const nn::OptimizerSettings& optimizer);

  CpuMath::ParameterView parameters(ElementRange range) const {
    return std::span(parameters_).subspan(range.begin, range.size());
  }
  CpuMath::Numbers gradients(ElementRange range) {
    return std::span(gradients_).subspan(range.begin, range.size());
  }
  void clear_gradients();
  void scale_gradients(float factor);
  /// The sum over each range.
  std::vector<double> squares(const std::vector<ElementRange>& ranges);

  /// The `number`th step of the optimizer, from one. Requires: the range is that of some layers or
  /// of a tie in the layout.
  void update(ElementRange range, std::int64_t number);

  /// All of a kind, on the host. Valid until the next call.
  std::span<const float> values(TensorKind kind) const;
  /// Sets one tensor's, of the state its `number`th array. Requires: as many; no gradients.
  void assign(const TensorPlace& place, TensorKind kind, std::size_t number,
              std::span<const float> values);

 private:
  const StageLayout& layout_;
  const nn::OptimizerSettings optimizer_;
  const std::size_t states_;  // numbers of the optimizer's for each parameter
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<float> state_;
};

}  // namespace dapple::exec
