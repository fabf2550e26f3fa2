#include "cuda/modules/attention.h"

#include <utility>

#include "cuda/kernels/layers/attention_kernels.h"
#include "cuda/kernels/layers/head_groups.h"
#include "cuda/memory/libraries.h"
#include "cuda/modules/modules.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {

AttentionShape shape_of(const AttentionOperation& operation, const DeviceTensor& tensor) {
  return {.samples = tensor.shape[0],
          .sequence = tensor.shape[1],
          .heads = operation.heads,
          .width = head_width_of(operation),
          .is_causal = operation.causal,
          .type = tensor.type};
}

void attend_fastest(Device& device, const AttentionShape& shape, const AttentionForward& arrays) {
  FusedAttention& library = device.libraries().attention;
  if (library.supports(device, shape)) return library.run(device, shape, arrays);
  attend(device, shape, arrays);
}

void attend_fastest(Device& device, const AttentionShape& shape, const AttentionBackward& arrays) {
  FusedAttention& library = device.libraries().attention;
  if (library.supports(device, shape)) return library.run(device, shape, arrays);
  attend_backward(device, shape, arrays);
}

namespace {

class AttentionHeads : public DeviceModuleWithoutParameters {
 public:
  explicit AttentionHeads(const AttentionOperation& operation) : operation_(operation) {}

  DeviceTensor forward(Device& device, Parameters, DeviceTensor input, const DeviceTensor&,
                       DeviceStash& stash) const override {
    const AttentionShape shape = shape_of(operation_, input);
    DeviceTensor output =
        make_tensor(device, {shape.samples, shape.sequence, shape.heads * shape.width}, input.type);
    DeviceTensor log_sums =
        make_tensor(device, {shape.samples, shape.heads, shape.sequence}, Type::Float32);
    attend_fastest(device, shape,
                   AttentionForward{.queries_keys_values = input.view(),
                                    .output = output.view(),
                                    .log_sums = log_sums.view()});
    DeviceTensor kept = make_tensor(device, output.shape, output.type);
    copy(device.compute(), output.view(), kept.view());
    stash.tensors.push_back(std::move(input));
    stash.tensors.push_back(std::move(kept));
    stash.tensors.push_back(std::move(log_sums));
    return output;
  }

  DeviceTensor input_gradient(Device& device, Parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    const DeviceTensor& input = stash.tensors[0];
    DeviceTensor gradient = make_tensor(device, input.shape, input.type);
    attend_fastest(device, shape_of(operation_, input),
                   AttentionBackward{.forward = {.queries_keys_values = input.view(),
                                                 .output = stash.tensors[1].view(),
                                                 .log_sums = stash.tensors[2].view()},
                                     .output_gradient = output_gradient.view(),
                                     .input_gradient = gradient.view()});
    stash.tensors.clear();
    return gradient;
  }

 private:
  AttentionOperation operation_;
};

/// Brings the heads of queries, keys and values into the form in which attention takes them.
class SpreadHeads : public DeviceModuleWithoutParameters {
 public:
  explicit SpreadHeads(const AttentionOperation& operation) : operation_(operation) {}

  DeviceTensor forward(Device& device, Parameters, DeviceTensor input, const DeviceTensor&,
                       DeviceStash&) const override {
    const HeadGroups groups = groups_of(input.shape[1]);
    DeviceTensor output =
        make_tensor(device, {input.shape[0], groups.sequence, groups.spread_columns()}, input.type);
    spread_heads(device, groups, input.view(), output.view());
    return output;
  }

  DeviceTensor input_gradient(Device& device, Parameters, DeviceTensor output_gradient,
                              DeviceStash&) const override {
    const HeadGroups groups = groups_of(output_gradient.shape[1]);
    DeviceTensor gradient =
        make_tensor(device, {output_gradient.shape[0], groups.sequence, groups.columns()},
                    output_gradient.type);
    gather_heads(device, groups, output_gradient.view(), gradient.view());
    return gradient;
  }

 private:
  HeadGroups groups_of(std::int64_t sequence) const {
    return {.sequence = sequence,
            .heads = operation_.heads,
            .kv_heads = kv_heads_of(operation_),
            .copies = operation_.heads / kv_heads_of(operation_),
            .width = head_width_of(operation_),
            .rotary_base = operation_.form.rotary_base};
  }

  AttentionOperation operation_;
};

}  // namespace

bool has_spread_heads(const AttentionOperation& operation) {
  return kv_heads_of(operation) != operation.heads || operation.form.rotary_base.has_value();
}

std::unique_ptr<DeviceModule> make_spread_heads(const AttentionOperation& operation) {
  return std::make_unique<SpreadHeads>(operation);
}

std::unique_ptr<DeviceModule> make_attention_heads(const AttentionOperation& operation) {
  return std::make_unique<AttentionHeads>(operation);
}

}  // namespace dapple::cuda
