// Measures the layers of a model on a GPU with events, so that the enqueued work runs without host
// interaction.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dapple/cuda/kernels/arrays.h"
#include "dapple/cuda/kernels/optimizer.h"
#include "dapple/cuda/kernels/spin.h"
#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/cuda/modules/module.h"
#include "dapple/cuda/modules/shared_layers.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "exec/gpu/cuda_marks.h"
#include "exec/measure/timed_passes.h"

namespace dapple::exec {
namespace {

/// The counterpart of LoneRank: collectives that leave or repeat the rank's own numbers.
class LoneGroup : public cuda::DeviceGroup {
 public:
  explicit LoneGroup(cuda::Device& device) : device_(device) {}

  void all_reduce(cuda::View /*values*/) override {}
  void all_gather(cuda::View own, cuda::View all) override {
    cuda::repeat(device_.compute(), own, all);
  }
  void reduce_scatter(cuda::View all, cuda::View own) override {
    cuda::copy(device_.compute(), all.part(0, own.count), own);
  }
  /// As if all ranks sent as much as this one keeps.
  std::vector<std::vector<std::int64_t>> exchange_counts(
      const std::vector<std::vector<std::int64_t>>& to) override {
    return std::vector(to.size(), to.front());
  }
  void all_to_all(std::span<const cuda::View> to, std::span<const cuda::View> from) override {
    for (const cuda::View& one : from) {
      if (to.front().count == 0) {
        cuda::fill_with_zeros(device_.compute(), one);
      } else {
        cuda::repeat(device_.compute(), to.front(), one);
      }
    }
  }

 private:
  cuda::Device& device_;
};

/// The counterpart of CpuEngine on the first GPU.
class CudaEngine {
 public:
  using Tensor = cuda::DeviceTensor;
  using Stash = cuda::DeviceStash;
  class Layer;
  class Step;

  CudaEngine(cuda::Precision precision, const nn::LayerRank& rank)
      : precision_(precision),
        device_(0, memory_of(cuda::properties_of(0))),
        head_start_(device_),
        alone_(device_),
        rank_{.layers = rank,
              .tensor = &alone_,
              .context = &alone_,
              .experts = &alone_,
              .expert_tensor = &alone_} {}

  /// Keeps the GPU busy while the host enqueues the first layers, whose kernels would otherwise be
  /// timed together with their launches.
  void begin() {
    constexpr Duration kHeadStart{500'000};
    marks_.begin(device_.compute());
    head_start_.restart();
    head_start_.pass_until(kHeadStart);
  }
  Mark mark() { return marks_.mark(device_.compute()); }
  std::int64_t moment_of(const Mark& mark) const { return marks_.moment_of(mark); }

  Tensor numbers(const nn::Tensor& tensor) { return cuda::to_device(device_, tensor, type()); }
  Tensor tokens(const nn::Tensor& tensor) {
    return cuda::to_device(device_, tensor, cuda::Type::Int32);
  }
  Tensor repeated(const nn::Tensor& numbers, nn::Shape shape) {
    const Tensor once = this->numbers(numbers);
    Tensor tensor = cuda::make_tensor(device_, std::move(shape), type());
    cuda::repeat(device_.compute(), once.view(), tensor.view());
    return tensor;
  }
  Tensor copy_of(const Tensor& tensor) {
    Tensor copy = cuda::make_tensor(device_, tensor.shape, tensor.type);
    cuda::copy(device_.compute(), tensor.view(), copy.view());
    return copy;
  }
  static Bytes size_of(const Tensor& tensor) { return tensor.memory.size(); }
  static Bytes size_of(const Tensor& tensor, const nn::Shape& shape) {
    return {nn::count_of(shape) * cuda::size_of(tensor.type)};
  }
  static Bytes size_of(const Stash& stash) { return cuda::size_of(stash); }
  void watch_memory() { device_.forget_most_memory_in_use(); }
  Bytes memory_in_use() const { return device_.memory_in_use(); }
  Bytes most_memory_in_use() const { return device_.most_memory_in_use(); }
  /// Returns the number of parameters on which an optimizer step is timed: all of them, up to a
  /// number from which a GPU's caches no longer make a difference.
  std::size_t most_stepped(std::int64_t parameters) const {
    constexpr std::int64_t kMost = 64'000'000;
    return static_cast<std::size_t>(std::clamp<std::int64_t>(parameters, 1, kMost));
  }

  cuda::Device& device() { return device_; }
  cuda::Precision precision() const { return precision_; }
  cuda::Type type() const { return cuda::type_of(precision_); }
  /// Returns how layers are run.
  const cuda::DeviceRank& rank() const { return rank_; }

  /// Returns a zero-filled array, whose memory is freed with the buffer.
  cuda::View zeros(std::int64_t count, cuda::Type type, cuda::Buffer& memory) {
    cuda::View view{nullptr, type, count};
    memory = device_.allocate(view.size());
    view.address = memory.address();
    cuda::fill_with_zeros(device_.compute(), view);
    return view;
  }

 private:
  /// Leaves a tenth of the free memory to libraries.
  static Bytes memory_of(const cuda::GpuProperties& gpu) {
    return {gpu.free_memory.count / 10 * 9};
  }

  const cuda::Precision precision_;
  cuda::Device device_;
  CudaMarks marks_;
  cuda::Spin head_start_;
  LoneGroup alone_;
  cuda::DeviceRank rank_;
};

class CudaEngine::Layer {
 public:
  Layer(CudaEngine& engine, const std::vector<nn::ModelLayer>& model, std::size_t number)
      : device_(engine.device()),
        precision_(engine.precision()),
        is_shared_(!engine.rank().layers.runs_whole_layers()),
        number_(number) {
    for (const nn::ModelLayer& layer : model) operations_.push_back(layer.operation);
    if (is_shared_) {
      const RecomputedParts recomputed = engine.rank().layers.recomputes;
      module_ = std::move(cuda::make_shared_modules({&operations_[number], 1}, {&recomputed, 1},
                                                    engine.rank(), precision_)
                              .front());
    } else {
      module_ = std::move(cuda::make_modules(operations_, precision_)[number]);
    }
    const nn::ModelLayer& layer = model[number];
    for (const nn::ParameterSpec& spec : layer.module->parameters()) {
      nn::Tensor values = nn::zeros(spec.shape);
      nn::initialize(spec, layer.name + "." + spec.name, kMeasuredSeed, values.values);
      parameters_.push_back(engine.numbers(values));
      parameter_views_.push_back(parameters_.back().view());
      gradient_views_.push_back(
          engine.zeros(nn::count_of(spec.shape), cuda::Type::Float32, gradients_.emplace_back()));
    }
  }

  nn::Shape taken_shape(nn::Shape dense) const {
    if (is_shared_) return dense;
    return cuda::taken_shape(operations_, number_, std::move(dense), precision_);
  }

  Tensor forward(Tensor input, const Tensor& targets, Stash& stash) const {
    return module_->forward(device_, parameter_views_, std::move(input), targets, stash);
  }
  Tensor input_gradient(Tensor output_gradient, Stash& stash) const {
    return module_->input_gradient(device_, parameter_views_, std::move(output_gradient), stash);
  }
  void weight_gradient(Stash& stash) const {
    module_->weight_gradient(device_, stash, gradient_views_);
  }

 private:
  cuda::Device& device_;
  const cuda::Precision precision_;
  // Whether ranks share the layer, or parts of it are computed again.
  const bool is_shared_;
  // The operations of all layers of the model.
  std::vector<Operation> operations_;
  // The position of this layer among them.
  const std::size_t number_;
  std::unique_ptr<cuda::DeviceModule> module_;
  std::vector<cuda::DeviceTensor> parameters_;
  std::vector<cuda::Buffer> gradients_;
  std::vector<cuda::View> parameter_views_;
  std::vector<cuda::View> gradient_views_;
};

/// An optimizer step on master parameters, gradients and state in single precision and on the
/// working copies.
class CudaEngine::Step {
 public:
  Step(CudaEngine& engine, nn::OptimizerKind kind, std::size_t parameters)
      : stream_(engine.device().compute()), settings_{.kind = kind} {
    const auto count = static_cast<std::int64_t>(parameters);
    const bool has_copies = engine.type() != cuda::Type::Float32;
    arrays_ = {
        .parameters = engine.zeros(count, cuda::Type::Float32, memory_[0]),
        .gradients = engine.zeros(count, cuda::Type::Float32, memory_[1]),
        .state = engine.zeros(count * nn::state_count(kind), cuda::Type::Float32, memory_[2]),
        .copy = engine.zeros(has_copies ? count : 0, engine.type(), memory_[3])};
  }

  void run() { cuda::update(stream_, settings_, ++number_, 1, arrays_); }

 private:
  const cuda::Stream& stream_;
  nn::OptimizerSettings settings_;
  std::int64_t number_ = 0;
  std::array<cuda::Buffer, 4> memory_;
  cuda::UpdatedArrays arrays_;
};

}  // namespace

CorePasses passes_on_gpu(const MeasurementSubject& subject, const MeasureOptions& options) {
  usable_gpus();
  CudaEngine engine(options.precision, subject.rank);
  Agreement agreement(1);
  AgreeingCore alone(agreement, 0);
  CorePasses passes = timed_passes(engine, subject, options, alone);
  passes.gpu = cuda::properties_of(0).name;
  return passes;
}

}  // namespace dapple::exec
