#include <utility>

#include "cuda/kernels/layers/layer_norm.h"
#include "cuda/modules/attention.h"
#include "cuda/modules/linear.h"
#include "cuda/modules/modules.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

/// The parameters in nn's order.
enum : std::size_t {
  kNorm1Scale,
  kNorm1Shift,
  kQkvWeight,
  kQkvBias,
  kProjectionWeight,
  kProjectionBias,
  kNorm2Scale,
  kNorm2Shift,
  kExpandWeight,
  kExpandBias,
  kReduceWeight,
  kReduceBias,
  kParameters
};

/// The tensors in the stash after a forward, and what the input gradient replaces them by for the
/// weight gradient.
enum : std::size_t {
  kInput,
  kStatistics1,
  kNormed1,
  kQkv,  // then its gradient
  kAttended,
  kLogSums,
  kMiddle,       // after attention and its residual connection; then its gradient
  kStatistics2,  // then the gradients of both norms' parameters
  kNormed2,
  kGeluInput,  // then its gradient
  kExpanded,
  kOutputGradient,
  kTensors
};

/// A pre-norm block, equivalent to nn's composition of single modules. Biases, GELU and residual
/// connections are fused into the products, and gradients of residual connections are added in the
/// backward of the norms.
class TransformerBlock : public DeviceModule {
 public:
  explicit TransformerBlock(const TransformerBlockOperation& operation)
      : hidden_(operation.hidden),
        attention_(attention_of(operation)),
        qkv_{hidden_, 3 * hidden_},
        projection_{hidden_, hidden_},
        expand_{hidden_, operation.feed_forward},
        reduce_{operation.feed_forward, hidden_} {}

  std::size_t parameter_count() const override { return kParameters; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor&, DeviceStash& stash) const override {
    stash.tensors.resize(kTensors);
    stash.tensors[kInput] = std::move(input);
    normalise_rows(device, parameters.subspan(kNorm1Scale, 2), stash,
                   {kInput, kStatistics1, kNormed1});
    attend_heads(device, parameters, stash);
    normalise_rows(device, parameters.subspan(kNorm2Scale, 2), stash,
                   {kMiddle, kStatistics2, kNormed2});
    return feed_forward(device, parameters, stash);
  }

  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    stash.tensors[kOutputGradient] = std::move(output_gradient);
    DeviceTensor norm_sums = make_tensor(device, {4, hidden_}, Type::Float32);
    const DeviceTensor of_normed2 = feed_forward_gradient(device, parameters, stash);
    // The gradient of the residual connection around the feed-forward is added here.
    DeviceTensor of_middle =
        norm_gradient(device, parameters[kNorm2Scale], stash,
                      {.input = kMiddle,
                       .statistics = kStatistics2,
                       .output_gradient = of_normed2.view(),
                       .addend = stash.tensors[kOutputGradient].view(),
                       .sums = norm_sums.view().part(2 * hidden_, 4 * hidden_)});
    stash.tensors[kMiddle] = std::move(of_middle);
    const DeviceTensor of_normed1 = attention_gradient(device, parameters, stash);
    DeviceTensor gradient = norm_gradient(device, parameters[kNorm1Scale], stash,
                                          {.input = kInput,
                                           .statistics = kStatistics1,
                                           .output_gradient = of_normed1.view(),
                                           .addend = stash.tensors[kMiddle].view(),
                                           .sums = norm_sums.view().part(0, 2 * hidden_)});
    stash.tensors[kStatistics2] = std::move(norm_sums);
    for (const std::size_t spent : {kInput, kStatistics1, kLogSums}) stash.tensors[spent] = {};
    return gradient;
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    const auto add_of = [&](const LinearOperation& operation, std::size_t input,
                            std::size_t gradient, std::size_t weight) {
      add_weight_gradients(device, operation,
                           {.input = stash.tensors[input].view(),
                            .output_gradient = stash.tensors[gradient].view(),
                            .weight = sums[weight],
                            .bias = sums[weight + 1]});
    };
    add_of(reduce_, kExpanded, kOutputGradient, kReduceWeight);
    add_of(expand_, kNormed2, kGeluInput, kExpandWeight);
    add_of(projection_, kAttended, kMiddle, kProjectionWeight);
    add_of(qkv_, kNormed1, kQkv, kQkvWeight);
    const View of_norms[] = {sums[kNorm1Scale], sums[kNorm1Shift], sums[kNorm2Scale],
                             sums[kNorm2Shift]};
    add_pieces(device.compute(), stash.tensors[kStatistics2].view(), of_norms);
    stash.tensors.clear();
  }

 private:
  struct NormTensors {
    std::size_t input;
    std::size_t statistics;
    std::size_t output;
  };
  struct NormGradient {
    std::size_t input;
    std::size_t statistics;
    View output_gradient;
    View addend;
    View sums;
  };

  /// Creates a tensor [samples, sequence, columns] in the precision of the input.
  DeviceTensor make_rows(Device& device, const DeviceStash& stash, std::int64_t columns) const {
    const DeviceTensor& input = stash.tensors[kInput];
    return make_tensor(device, {input.shape[0], input.shape[1], columns}, input.type);
  }

  void normalise_rows(Device& device, Parameters scale_and_shift, DeviceStash& stash,
                      const NormTensors& at) const {
    const DeviceTensor& input = stash.tensors[at.input];
    DeviceTensor output = make_rows(device, stash, hidden_);
    DeviceTensor statistics = make_tensor(device, {2, input.count() / hidden_}, Type::Float32);
    normalise(device.compute(), {.columns = hidden_,
                                 .input = input.view(),
                                 .scale = scale_and_shift[0],
                                 .shift = scale_and_shift[1],
                                 .output = output.view(),
                                 .statistics = row_statistics(statistics)});
    stash.tensors[at.output] = std::move(output);
    stash.tensors[at.statistics] = std::move(statistics);
  }

  void attend_heads(Device& device, Parameters parameters, DeviceStash& stash) const {
    auto& tensors = stash.tensors;
    tensors[kQkv] = make_rows(device, stash, 3 * hidden_);
    apply(device, qkv_,
          {.input = tensors[kNormed1].view(),
           .weight = parameters[kQkvWeight],
           .bias = parameters[kQkvBias],
           .output = tensors[kQkv].view()});
    const AttentionShape shape = shape_of(attention_, tensors[kQkv]);
    tensors[kAttended] = make_rows(device, stash, hidden_);
    tensors[kLogSums] =
        make_tensor(device, {shape.samples, shape.heads, shape.sequence}, Type::Float32);
    attend_fastest(device, shape, attention_forward(stash));
    tensors[kMiddle] = make_rows(device, stash, hidden_);
    apply(device, projection_,
          {.input = tensors[kAttended].view(),
           .weight = parameters[kProjectionWeight],
           .bias = parameters[kProjectionBias],
           .output = tensors[kMiddle].view(),
           .addend = tensors[kInput].view()});
  }

  static AttentionForward attention_forward(const DeviceStash& stash) {
    return {.queries_keys_values = stash.tensors[kQkv].view(),
            .output = stash.tensors[kAttended].view(),
            .log_sums = stash.tensors[kLogSums].view()};
  }

  DeviceTensor feed_forward(Device& device, Parameters parameters, DeviceStash& stash) const {
    auto& tensors = stash.tensors;
    tensors[kGeluInput] = make_rows(device, stash, expand_.outputs);
    tensors[kExpanded] = make_rows(device, stash, expand_.outputs);
    apply(device, expand_,
          {.input = tensors[kNormed2].view(),
           .weight = parameters[kExpandWeight],
           .bias = parameters[kExpandBias],
           .output = tensors[kExpanded].view(),
           .gelu_input = tensors[kGeluInput].view()});
    DeviceTensor output = make_rows(device, stash, hidden_);
    apply(device, reduce_,
          {.input = tensors[kExpanded].view(),
           .weight = parameters[kReduceWeight],
           .bias = parameters[kReduceBias],
           .output = output.view(),
           .addend = tensors[kMiddle].view()});
    return output;
  }

  /// Returns the gradient of the second norm's output; that of GELU's input replaces the latter.
  DeviceTensor feed_forward_gradient(Device& device, Parameters parameters,
                                     DeviceStash& stash) const {
    auto& tensors = stash.tensors;
    DeviceTensor of_gelu_input = make_rows(device, stash, expand_.outputs);
    apply_backward(device, reduce_,
                   {.output_gradient = tensors[kOutputGradient].view(),
                    .weight = parameters[kReduceWeight],
                    .input_gradient = of_gelu_input.view(),
                    .gelu_input = tensors[kGeluInput].view()});
    tensors[kGeluInput] = std::move(of_gelu_input);
    DeviceTensor gradient = make_rows(device, stash, hidden_);
    apply_backward(device, expand_,
                   {.output_gradient = tensors[kGeluInput].view(),
                    .weight = parameters[kExpandWeight],
                    .input_gradient = gradient.view()});
    return gradient;
  }

  /// Returns the gradient of the first norm's output; that of queries, keys and values replaces
  /// these.
  DeviceTensor attention_gradient(Device& device, Parameters parameters, DeviceStash& stash) const {
    auto& tensors = stash.tensors;
    const DeviceTensor of_attended = make_rows(device, stash, hidden_);
    apply_backward(device, projection_,
                   {.output_gradient = tensors[kMiddle].view(),
                    .weight = parameters[kProjectionWeight],
                    .input_gradient = of_attended.view()});
    DeviceTensor of_qkv = make_rows(device, stash, 3 * hidden_);
    attend_fastest(device, shape_of(attention_, tensors[kQkv]),
                   AttentionBackward{.forward = attention_forward(stash),
                                     .output_gradient = of_attended.view(),
                                     .input_gradient = of_qkv.view()});
    tensors[kQkv] = std::move(of_qkv);
    DeviceTensor gradient = make_rows(device, stash, hidden_);
    apply_backward(device, qkv_,
                   {.output_gradient = tensors[kQkv].view(),
                    .weight = parameters[kQkvWeight],
                    .input_gradient = gradient.view()});
    return gradient;
  }

  DeviceTensor norm_gradient(Device& device, const View& scale, const DeviceStash& stash,
                             const NormGradient& of) const {
    DeviceTensor gradient = make_rows(device, stash, hidden_);
    normalise_backward(device, {.columns = hidden_,
                                .input = stash.tensors[of.input].view(),
                                .scale = scale,
                                .statistics = row_statistics(stash.tensors[of.statistics]),
                                .output_gradient = of.output_gradient,
                                .input_gradient = gradient.view(),
                                .sums = of.sums,
                                .addend = of.addend});
    return gradient;
  }

  std::int64_t hidden_;
  AttentionOperation attention_;
  LinearOperation qkv_;
  LinearOperation projection_;
  LinearOperation expand_;
  LinearOperation reduce_;
};

}  // namespace

std::unique_ptr<DeviceModule> make_transformer_block(const TransformerBlockOperation& operation) {
  return std::make_unique<TransformerBlock>(operation);
}

}  // namespace dapple::cuda
