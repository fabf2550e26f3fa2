// What GPT-2 costs on a GPU, module by module, beside what this GPU could do at best; then a whole
// step of training on one device.
//
//   bench_cuda [124M|350M] [SEQUENCES]    bf16, 1,024 tokens a sequence; 16 sequences if not said
//
// Times are medians of 20, by events, after 5 that do not count. The best is what the GPU does in
// the same minute: a copy of a GiB (bytes read and written), and a product of 8,192^3. All is done
// with random numbers: with zeros a GPU draws less power and may keep a higher clock.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/random.h"
#include "dapple/cuda/kernels/arrays.h"
#include "dapple/cuda/kernels/optimizer.h"
#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/modules/module.h"
#include "dapple/nn/module.h"

namespace {

using namespace dapple;
using cuda::DeviceTensor;
using cuda::Type;
using cuda::View;

constexpr cuda::Precision kPrecision = cuda::Precision::BFloat16;
constexpr std::int64_t kSequence = 1'024;
constexpr std::int64_t kVocabulary = 50'304;  // of 50,257, to a multiple of 128

struct Model {
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t blocks;
};

/// Work of one call, at least.
struct Work {
  double bytes = 0;
  double operations = 0;
};

/// Parameters and sums of gradients of one module.
struct Weights {
  std::vector<DeviceTensor> tensors;
  std::vector<View> parameters;
  std::vector<View> sums;
  std::int64_t count = 0;

  Weights(cuda::Device& device, const Operation& operation) {
    const auto described = nn::make_module(operation);
    for (const nn::ParameterSpec& parameter : described->parameters()) {
      nn::Tensor values = nn::zeros(parameter.shape);
      nn::initialize(parameter, parameter.name, 1, values.values);
      tensors.push_back(to_device(device, values, type_of(kPrecision)));
      parameters.push_back(tensors.back().view());
      tensors.push_back(make_tensor(device, parameter.shape, Type::Float32));
      sums.push_back(tensors.back().view());
      fill_with_zeros(device.compute(), sums.back());
      count += sums.back().count;
    }
  }
};

class Bench {
 public:
  Bench(const Model& model, std::int64_t sequences)
      : device_(0, {cuda::properties_of(0).free_memory.count - (std::int64_t{2} << 30)}),
        model_(model),
        rows_(sequences * kSequence),
        sequences_(sequences) {
    nn::Tensor numbers = nn::zeros({kDrawn});
    for (std::size_t i = 0; i < numbers.values.size(); ++i) {
      numbers.values[i] = RandomStream(1).normal_pair(i).first;
    }
    drawn_ = to_device(device_, numbers, Type::Float32);
    const cuda::GpuProperties gpu = cuda::properties_of(0);
    fmt::print("{}, GPT-2 with {} blocks of {}, {} sequences of {} tokens, bf16\n\n", gpu.name,
               model.blocks, model.hidden, sequences, kSequence);
    measure_best();
    fmt::print("{:<40} {:>10} {:>8} {:>9} {:>8}\n", "", "us", "GB/s", "TFLOP/s", "of best");
  }

  void run_modules() {
    const std::int64_t hidden = model_.hidden;
    run("embedding", EmbeddingOperation{kVocabulary, kSequence, hidden}, {sequences_, kSequence},
        {numbers(hidden), 0});
    run("layer norm", LayerNormOperation{hidden}, rows_of(hidden), {2 * numbers(hidden), 0});
    run_linear("queries, keys, values", hidden, 3 * hidden);
    run_linear("projection", hidden, hidden);
    run_linear("expand", hidden, 4 * hidden);
    run_linear("reduce", 4 * hidden, hidden);
    const double scores = static_cast<double>(rows_ * kSequence * hidden) * 2;  // half are seen
    const AttentionOperation attention{hidden, model_.heads, true};
    run("attention with projections", attention, rows_of(hidden),
        {8 * numbers(hidden), 8 * products(hidden, hidden) / 2 + scores});
    run("transformer block", block(), rows_of(hidden),
        {16 * numbers(hidden), 12 * products(hidden, hidden) + scores});
    run_linear("head", hidden, kVocabulary);
    run("softmax cross-entropy", SoftmaxCrossEntropyOperation{kVocabulary}, rows_of(kVocabulary),
        {numbers(kVocabulary), 0});
  }

  void run_optimizer() {
    const std::int64_t count = parameter_count();
    const DeviceTensor parameters = random({count}, Type::Float32);
    const DeviceTensor gradients = random({count}, Type::Float32);
    const DeviceTensor state = make_tensor(device_, {2 * count}, Type::Float32);
    fill_with_zeros(device_.compute(), state.view());
    const DeviceTensor copy = make_tensor(device_, {count}, type_of(kPrecision));
    const cuda::Buffer norm = device_.allocate({sizeof(double)});
    const auto bytes = [&](double of_each) {
      return Work{of_each * static_cast<double>(count), 0};
    };
    report("AdamW", bytes(30), median_of([&] {
             update(device_.compute(), {}, 1, 1,
                    {parameters.view(), gradients.view(), state.view(), copy.view()});
           }));
    report("squared norm", bytes(4),
           median_of([&] { squared_norm(device_, gradients.view(), norm.address()); }));
  }

  /// Forward, backward and AdamW of all layers.
  void run_step() {
    std::vector<Operation> operations{EmbeddingOperation{kVocabulary, kSequence, model_.hidden}};
    for (std::int64_t i = 0; i < model_.blocks; ++i) operations.emplace_back(block());
    operations.emplace_back(LayerNormOperation{model_.hidden});
    operations.emplace_back(LinearOperation{model_.hidden, kVocabulary, false});
    operations.emplace_back(SoftmaxCrossEntropyOperation{kVocabulary});
    const auto modules = make_modules(operations, kPrecision);
    std::vector<Weights> weights;
    for (const Operation& operation : operations) weights.emplace_back(device_, operation);
    std::vector<DeviceTensor> optimizer;  // masters, then state
    for (const Weights& of_layer : weights) {
      for (const View& parameter : of_layer.parameters) {
        optimizer.push_back(make_tensor(device_, {parameter.count}, Type::Float32));
        copy(device_.compute(), parameter, optimizer.back().view());
        optimizer.push_back(make_tensor(device_, {2 * parameter.count}, Type::Float32));
        fill_with_zeros(device_.compute(), optimizer.back().view());
      }
    }
    const nn::Tensor tokens = random_whole({sequences_, kSequence}, kVocabulary);
    const DeviceTensor targets = to_device(device_, tokens, Type::Int32);
    const auto step = [&] {
      std::vector<cuda::DeviceStash> stashes(modules.size());
      DeviceTensor values = to_device(device_, tokens, Type::Int32);
      for (std::size_t i = 0; i < modules.size(); ++i) {
        values = modules[i]->forward(device_, weights[i].parameters, std::move(values), targets,
                                     stashes[i]);
      }
      for (std::size_t i = modules.size(); i-- > 0;) {
        values = modules[i]->input_gradient(device_, weights[i].parameters, std::move(values),
                                            stashes[i]);
        modules[i]->weight_gradient(device_, stashes[i], weights[i].sums);
      }
      auto arrays = optimizer.begin();
      for (const Weights& of_layer : weights) {
        for (std::size_t i = 0; i < of_layer.sums.size(); ++i, arrays += 2) {
          update(device_.compute(), {}, 1, 1,
                 {arrays[0].view(), of_layer.sums[i], arrays[1].view(), of_layer.parameters[i]});
          fill_with_zeros(device_.compute(), of_layer.sums[i]);
        }
      }
    };
    const double seconds = median_of(step);
    const double operations_of_step =
        3 * (static_cast<double>(model_.blocks) *
                 (12 * products(model_.hidden, model_.hidden) +
                  static_cast<double>(rows_ * kSequence * model_.hidden) * 2) +
             products(model_.hidden, kVocabulary));
    fmt::print("\nstep {:.2f} ms, {:.0f} tokens/s, {:.0f} TFLOP/s, {:.0f} % of the best product\n",
               seconds * 1e3, static_cast<double>(rows_) / seconds,
               operations_of_step / seconds / 1e12,
               100 * operations_of_step / seconds / best_.operations);
    fmt::print("most memory in use {:.1f} GiB\n",
               static_cast<double>(device_.most_memory_in_use().count) / (1 << 30));
  }

 private:
  static constexpr std::int64_t kDrawn = std::int64_t{1} << 20;

  /// The same normal numbers again and again.
  DeviceTensor random(nn::Shape shape, Type type) {
    DeviceTensor tensor = make_tensor(device_, std::move(shape), type);
    repeat(device_.compute(), drawn_.view(), tensor.view());
    return tensor;
  }

  static nn::Tensor random_whole(nn::Shape shape, std::int64_t below) {
    nn::Tensor tensor = nn::zeros(std::move(shape));
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] = static_cast<float>(RandomStream(2).below(below, i));
    }
    return tensor;
  }

  TransformerBlockOperation block() const {
    return {model_.hidden, model_.heads, 4 * model_.hidden, kSequence, true};
  }
  std::int64_t parameter_count() const {
    return (kVocabulary + kSequence + 12 * model_.blocks * model_.hidden) * model_.hidden;
  }
  nn::Shape rows_of(std::int64_t columns) const { return {sequences_, kSequence, columns}; }
  /// Bytes of the rows, and operations of their product with a matrix.
  double numbers(std::int64_t columns) const { return 2.0 * static_cast<double>(rows_ * columns); }
  double products(std::int64_t inputs, std::int64_t outputs) const {
    return 2.0 * static_cast<double>(rows_ * inputs) * static_cast<double>(outputs);
  }

  double median_of(const std::function<void()>& call) {
    constexpr int kUncounted = 5;
    constexpr int kCounted = 20;
    std::vector<double> seconds;
    for (int i = 0; i < kUncounted + kCounted; ++i) {
      cuda::Event begin;
      cuda::Event end;
      begin.record(device_.compute());
      call();
      end.record(device_.compute());
      end.wait();
      if (i >= kUncounted) seconds.push_back(static_cast<double>(end.since(begin).ns) * 1e-9);
    }
    std::nth_element(seconds.begin(), seconds.begin() + kCounted / 2, seconds.end());
    return seconds[kCounted / 2];
  }

  void measure_best() {
    {
      constexpr std::int64_t kCount = std::int64_t{1} << 28;
      const DeviceTensor from = random({kCount}, Type::Float32);
      const DeviceTensor to = make_tensor(device_, {kCount}, Type::Float32);
      best_.bytes =
          8.0 * kCount / median_of([&] { copy(device_.compute(), from.view(), to.view()); });
    }
    constexpr std::int64_t kSide = 8'192;
    const LinearOperation square{kSide, kSide, false};
    const Weights weights(device_, square);
    const auto module = cuda::make_module(square, kPrecision);
    DeviceTensor input = random({kSide, kSide}, type_of(kPrecision));
    best_.operations = 2.0 * kSide * kSide * kSide / median_of([&] {
                         cuda::DeviceStash stash;
                         module->forward(device_, weights.parameters, std::move(input), {}, stash);
                         input = std::move(stash.tensors[0]);
                       });
    fmt::print("best: copy {:.0f} GB/s, product {:.0f} TFLOP/s\n\n", best_.bytes / 1e9,
               best_.operations / 1e12);
  }

  void report(const std::string& name, const Work& work, double seconds) const {
    const double least = std::max(work.bytes / best_.bytes, work.operations / best_.operations);
    fmt::print("{:<40} {:>10.1f} {:>8.0f} {:>9.1f} {:>7.0f}%\n", name, seconds * 1e6,
               work.bytes / seconds / 1e9, work.operations / seconds / 1e12, 100 * least / seconds);
  }

  void run_linear(const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    run(name, LinearOperation{inputs, outputs}, rows_of(inputs),
        {numbers(inputs + outputs), products(inputs, outputs)});
  }

  /// The three parts of a module, which are taken to be as much work each; its first part is timed
  /// with what prepares it, a copy.
  void run(const std::string& name, const Operation& operation, const nn::Shape& shape,
           const Work& work) {
    const Weights weights(device_, operation);
    const auto module = cuda::make_module(operation, kPrecision);
    const bool has_tokens = std::holds_alternative<EmbeddingOperation>(operation);
    const bool is_loss = std::holds_alternative<SoftmaxCrossEntropyOperation>(operation);
    const DeviceTensor targets =
        to_device(device_, random_whole({is_loss ? rows_ : 1}, kVocabulary), Type::Int32);
    const DeviceTensor source =
        has_tokens ? to_device(device_, random_whole(shape, kVocabulary), Type::Int32)
                   : random(shape, type_of(kPrecision));
    const auto input = [&] {
      DeviceTensor tensor = make_tensor(device_, source.shape, source.type);
      copy(device_.compute(), source.view(), tensor.view());
      return tensor;
    };
    cuda::DeviceStash stash;
    const auto forward = [&](DeviceTensor from) {
      stash = {};
      return module->forward(device_, weights.parameters, std::move(from), targets, stash);
    };
    const double preparing = median_of([&] { static_cast<void>(input()); });
    const double of_forward = median_of([&] { forward(input()); }) - preparing;
    report(name + ", forward", work, of_forward);
    const double of_input =
        median_of([&] {
          DeviceTensor slope = forward(input());
          module->input_gradient(device_, weights.parameters, std::move(slope), stash);
        }) -
        of_forward - preparing;
    report(name + ", input gradient", work, of_input);
    if (weights.sums.empty()) return;
    const double of_weights =
        median_of([&] {
          DeviceTensor slope = forward(input());
          module->input_gradient(device_, weights.parameters, std::move(slope), stash);
          module->weight_gradient(device_, stash, weights.sums);
        }) -
        of_input - of_forward - preparing;
    report(name + ", weight gradient", work, of_weights);
  }

  cuda::Device device_;
  DeviceTensor drawn_;
  Model model_;
  std::int64_t rows_;
  std::int64_t sequences_;
  Work best_;  // in a second
};

}  // namespace

int main(int count, char** arguments) try {
  const std::string_view name = count > 1 ? arguments[1] : "124M";
  const std::int64_t sequences = count > 2 ? std::atoll(arguments[2]) : 16;
  if ((name != "124M" && name != "350M") || sequences < 1) {
    fmt::print(stderr, "usage: bench_cuda [124M|350M] [SEQUENCES]\n");
    return 2;
  }
  if (dapple::cuda::gpu_count() == 0) {
    fmt::print(stderr, "no GPU here\n");
    return 5;
  }
  Bench bench(name == "124M" ? Model{768, 12, 12} : Model{1'024, 16, 24}, sequences);
  bench.run_modules();
  bench.run_optimizer();
  bench.run_step();
  return 0;
} catch (const dapple::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 5;
}
