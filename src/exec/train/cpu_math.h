// The computations of a device's stages on the CPU, in single precision and in the calling thread:
// every function has finished when it returns.
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

class CpuArrays;

/// The CPU's computations, and the interface that ModelBackend expects of its parameter Math.
class CpuMath {
 public:
  static constexpr Memory kMemory = Memory::Host;

  using Tensor = nn::Tensor;
  using Stash = nn::Stash;
  using ParameterView = std::span<const float>;
  using Numbers = std::span<float>;  // a range of gradients
  /// Parameters or gradients of whole layers, where only shards of them are held.
  using Whole = std::vector<float>;
  using Parameters = nn::Parameters;
  using Gradients = nn::Gradients;
  using Arrays = CpuArrays;
  /// Exists while an action is being computed.
  struct Range {
    explicit Range(const Action& /*action*/) {}
  };

  /// The job and the device's groups must outlive it.
  CpuMath(const TrainingJob& job, const TrainingDevice& device);

  /// Begins an iteration.
  void begin() {}
  Mark mark(Stream /*stream*/) { return {monotonic_now()}; }
  std::int64_t moment_of(const Mark& mark) { return mark.moment; }

  static Bytes size_of(const Tensor& tensor) {
    return {static_cast<std::int64_t>(tensor.values.size() * sizeof(float))};
  }
  static Bytes size_of(const Stash& stash) { return nn::size_of(stash); }

  /// Allocates a tensor for activations, or gradients of them, that arrive in fragments.
  Tensor make_tensor(nn::Shape shape) { return nn::zeros(std::move(shape)); }
  Tensor copy_of(const Tensor& tensor) { return tensor; }
  /// Copies samples, counted from the tensor's first one, from a message or to one.
  void take_in(Tensor& tensor, SampleRange samples, Payload payload);
  Payload give_out(const Tensor& tensor, SampleRange samples);
  Payload give_out(Tensor&& tensor);
  /// The same of a range of the tensor's numbers, of which there are so many.
  static std::int64_t count_of(const Tensor& tensor) { return std::ssize(tensor.values); }
  void take_in(Tensor& tensor, ElementRange numbers, Payload payload);
  Payload give_out(const Tensor& tensor, ElementRange numbers);
  /// Gathers a range of the numbers, of which each rank of a group has its own part.
  void gather_shares(nn::RankGroup& group, Tensor& tensor, ElementRange all, ElementRange own);
  /// Copies `samples` of `from` to `places` of `to`. Requires: both ranges have the same size.
  void copy_samples(const Tensor& from, SampleRange samples, Tensor& to, SampleRange places);

  /// Brings the model's input and the targets to where the backend computes.
  Tensor input(nn::Tensor numbers) { return numbers; }
  Tensor targets(nn::Tensor numbers) { return numbers; }
  std::vector<float> on_host(const Tensor& tensor) { return tensor.values; }
  /// Returns the gradient of the loss layer's output: `share` for each sample.
  Tensor loss_gradient(std::int64_t samples, float share);

  /// Call the functions of the same names of the layer's module.
  Tensor forward(std::int32_t layer, Parameters parameters, Tensor input, const Tensor& targets,
                 Stash& stash) {
    return module(layer).forward(parameters, std::move(input), targets, stash);
  }
  Tensor input_gradient(std::int32_t layer, Parameters parameters, Tensor output_gradient,
                        Stash& stash) {
    return module(layer).input_gradient(parameters, std::move(output_gradient), stash);
  }
  void weight_gradient(std::int32_t layer, Stash& stash, Gradients sums) {
    module(layer).weight_gradient(stash, sums);
  }
  /// Sums complete gradients over the ranks of a group. In this function and in the next two,
  /// numbers are those of CpuArrays, or of its counterpart.
  void sum(nn::RankGroup& group, Numbers gradients) { group.all_reduce(gradients); }
  /// The same, but each rank has the sum of its part, which the second function gathers again.
  void scatter(nn::RankGroup& group, Numbers all, Numbers own) { group.reduce_scatter(all, own); }
  void gather(nn::RankGroup& group, ParameterView own, Numbers all) { group.all_gather(own, all); }
  /// Gathers the parameters of which each rank holds a shard.
  void gather_whole(nn::RankGroup& group, ParameterView own, Whole& all) {
    group.all_gather(own, all);
  }
  /// The same of parameters that no other rank has.
  void copy_whole(ParameterView own, Whole& all) { all.assign(own.begin(), own.end()); }
  /// Adds the sum over the ranks that hold shards to the one that is held here.
  void add_shard(nn::RankGroup& group, Numbers all, Numbers sum);
  /// The same of gradients that no other rank has.
  void add(Numbers all, Numbers sum);
  /// Return memory for parameters that are gathered, or zeros to which gradients are added.
  Whole make_whole_parameters(std::size_t count) { return Whole(count); }
  Whole make_whole_gradients(std::size_t count) { return Whole(count); }
  static Numbers numbers_in(Whole& whole) { return whole; }
  static Numbers part(Numbers numbers, ElementRange range) {
    return numbers.subspan(range.begin, range.size());
  }

  /// Bring activations or gradients of them to the host, and back.
  nn::Tensor to_host(Tensor tensor) { return tensor; }
  Tensor from_host(nn::Tensor tensor) { return tensor; }

  /// Returns a buffer over complete gradients that another thread reduces after adding `others`.
  std::unique_ptr<ReductionBuffer> buffer(Numbers gradients, std::vector<Numbers> others);
  /// Makes later computations wait for all reductions whose threads have finished them.
  void await_reductions() {}
  void copy(Numbers from, Numbers to);

  /// The relative difference from the gradients and losses of a single CPU that rounding may cause.
  double tolerance() const { return 1e-5; }

  /// Whether the loss is multiplied by a factor that depends on earlier gradients. Then
  /// accepts_gradients() is told about each iteration's gradients, and returns false if they must
  /// be discarded.
  bool scales_loss() const { return false; }
  bool accepts_gradients(bool /*are_finite*/) { return true; }

 private:
  const nn::Module& module(std::int32_t layer) const {
    return *layers_[static_cast<std::size_t>(layer)].module;
  }

  /// The rank's layers, which use its groups; empty for a device that shares none.
  std::vector<nn::ModelLayer> shared_;
  std::span<const nn::ModelLayer> layers_;
};

/// Parameters, gradients and the optimizer's state of one stage. Ranges are those of the layout; of
/// them, only shards may be held.
class CpuArrays {
 public:
  /// Sets all numbers to zero. The layout must outlive it.
  CpuArrays(CpuMath& math, const StageLayout& layout, const nn::OptimizerSettings& optimizer);

  CpuMath::ParameterView parameters(ElementRange range) const {
    const ElementRange held = layout_.held(range);
    return std::span(parameters_).subspan(held.begin, held.size());
  }
  /// Returns parameters that collectives replace. Requires: no shards are held.
  CpuMath::Numbers replaced(ElementRange range) {
    return std::span(parameters_).subspan(range.begin, range.size());
  }
  CpuMath::Numbers gradients(ElementRange range) {
    const ElementRange held = layout_.held(range);
    return std::span(gradients_).subspan(held.begin, held.size());
  }
  void clear_gradients();
  void scale_gradients(float factor);
  /// Returns the sum of the squares of the gradients in each range.
  std::vector<double> squares(const std::vector<ElementRange>& ranges);

  /// Makes the optimizer's `number`th step, counted from one, on what this replica updates of a
  /// range. Requires: the range is that of some layers or of a tie in the layout.
  void update(ElementRange range, std::int64_t number);
  /// Returns a buffer over parameters, through which another thread replaces some of them.
  std::unique_ptr<ReductionBuffer> buffer(ElementRange range);
  /// Makes later computations use parameters that were replaced so.
  void take_replaced(ElementRange /*range*/) {}

  /// Returns all numbers of a kind, on the host: parameters and gradients in the order of the
  /// layout's places, or of its parts where shards are held, the state in that of its parts. Valid
  /// until the next call.
  std::span<const float> values(TensorKind kind) const;
  /// Sets the parameters of one tensor, or the `number`th array of a part's state. Requires:
  /// `values` has as many numbers.
  void assign(const TensorPlace& place, std::span<const float> values);
  void assign_state(const UpdatedPart& part, std::size_t number, std::span<const float> values);

 private:
  const StageLayout& layout_;
  const nn::OptimizerSettings optimizer_;
  const std::size_t states_;  // numbers of the optimizer's state for each parameter
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<float> state_;
};

}  // namespace dapple::exec
