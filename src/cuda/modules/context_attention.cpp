// Attention of ranks that have a part of each sequence: they gather keys and values as they are
// before they are turned and copied for their heads of queries, which takes no messages.
#include <utility>

#include "cuda/kernels/layers/attention_kernels.h"
#include "cuda/kernels/layers/head_groups.h"
#include "cuda/kernels/layers/sequence_parts.h"
#include "cuda/modules/modules.h"
#include "cuda/modules/shared_modules.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

class ContextAttention : public DeviceModuleWithoutParameters {
 public:
  ContextAttention(const AttentionOperation& operation, const ContextGroup& context)
      : operation_(operation), context_(context) {}

  DeviceTensor forward(Device& device, Parameters, DeviceTensor input, const DeviceTensor&,
                       DeviceStash& stash) const override {
    const DeviceTensor queries = queries_of(device, input);
    const DeviceTensor keys = keys_of(device, input);
    DeviceTensor output = make_tensor(device, queries.shape, queries.type);
    DeviceTensor log_sums =
        make_tensor(device, {input.shape[0], operation_.heads, input.shape[1]}, Type::Float32);
    attend(device, shape_of(input),
           ContextForward{.queries = queries.view(),
                          .keys_values = keys.view(),
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
    const DeviceTensor& input = stash.tensors[kAttentionInput];
    const DeviceTensor queries = queries_of(device, input);
    const DeviceTensor keys = keys_of(device, input);
    const DeviceTensor of_queries = make_tensor(device, queries.shape, queries.type);
    const DeviceTensor of_keys = make_tensor(device, keys.shape, keys.type);
    attend_backward(
        device, shape_of(input),
        ContextBackward{.forward = {.queries = queries.view(),
                                    .keys_values = keys.view(),
                                    .output = stash.tensors[kAttentionOutput].view(),
                                    .log_sums = stash.tensors[kAttentionLogSums].view()},
                        .output_gradient = output_gradient.view(),
                        .query_gradient = of_queries.view(),
                        .key_value_gradient = of_keys.view()});
    DeviceTensor gradient = make_tensor(device, input.shape, input.type);
    put_query_gradient(device, of_queries, gradient);
    put_key_gradient(device, of_keys, gradient);
    stash.tensors.clear();
    return gradient;
  }

 private:
  /// The tensors that are kept.
  enum : std::size_t { kAttentionInput, kAttentionOutput, kAttentionLogSums };

  std::int64_t width() const { return head_width_of(operation_); }
  std::int64_t columns_of_queries() const { return operation_.heads * width(); }
  std::int64_t columns_of_keys() const { return 2 * kv_heads_of(operation_) * width(); }

  ContextShape shape_of(const DeviceTensor& input) const {
    const std::int64_t sequence = input.shape[1] * context_.ranks;
    return {.samples = input.shape[0],
            .queries = input.shape[1],
            .keys = sequence,
            .heads = operation_.heads,
            .width = width(),
            .is_causal = operation_.causal,
            .positions = positions_of(context_, sequence)};
  }

  HeadGroups groups_of_queries(const DeviceTensor& input) const {
    return {.sequence = input.shape[1],
            .heads = operation_.heads,
            .kv_heads = 0,
            .width = width(),
            .rotary_base = operation_.form.rotary_base,
            .positions = positions_of(context_, input.shape[1] * context_.ranks)};
  }
  HeadGroups groups_of_keys(const DeviceTensor& input) const {
    return {.sequence = input.shape[1] * context_.ranks,
            .heads = 0,
            .kv_heads = kv_heads_of(operation_),
            .copies = operation_.heads / kv_heads_of(operation_),
            .width = width(),
            .rotary_base = operation_.form.rotary_base};
  }

  /// Copies the columns from `begin` on out of queries, keys and values.
  DeviceTensor columns_from(Device& device, const DeviceTensor& input, std::int64_t begin,
                            std::int64_t columns) const {
    DeviceTensor taken = make_tensor(device, {input.shape[0], input.shape[1], columns}, input.type);
    copy_columns(device.compute(), {.rows = input.count() / input.shape[2],
                                    .columns = columns,
                                    .from = input.view().part(begin, input.count()),
                                    .from_stride = input.shape[2],
                                    .to = taken.view(),
                                    .to_stride = columns});
    return taken;
  }
  void put_columns(Device& device, const DeviceTensor& columns, std::int64_t begin,
                   const DeviceTensor& into) const {
    copy_columns(device.compute(), {.rows = into.count() / into.shape[2],
                                    .columns = columns.shape[2],
                                    .from = columns.view(),
                                    .from_stride = columns.shape[2],
                                    .to = into.view().part(begin, into.count()),
                                    .to_stride = into.shape[2]});
  }

  /// Returns the rank's queries, turned.
  DeviceTensor queries_of(Device& device, const DeviceTensor& input) const {
    DeviceTensor queries = columns_from(device, input, 0, columns_of_queries());
    if (!operation_.form.rotary_base) return queries;
    DeviceTensor turned = make_tensor(device, queries.shape, queries.type);
    spread_heads(device, groups_of_queries(input), queries.view(), turned.view());
    return turned;
  }

  /// Returns the keys and values of whole sequences, turned, for every head of queries.
  DeviceTensor keys_of(Device& device, const DeviceTensor& input) const {
    const DeviceTensor own = columns_from(device, input, columns_of_queries(), columns_of_keys());
    const DeviceTensor all = gather_positions(device, own, context_);
    const HeadGroups groups = groups_of_keys(input);
    DeviceTensor spread =
        make_tensor(device, {all.shape[0], all.shape[1], groups.spread_columns()}, all.type);
    spread_heads(device, groups, all.view(), spread.view());
    return spread;
  }

  void put_query_gradient(Device& device, const DeviceTensor& of_queries,
                          const DeviceTensor& gradient) const {
    if (!operation_.form.rotary_base) return put_columns(device, of_queries, 0, gradient);
    const DeviceTensor turned_back = make_tensor(device, of_queries.shape, of_queries.type);
    gather_heads(device, groups_of_queries(gradient), of_queries.view(), turned_back.view());
    put_columns(device, turned_back, 0, gradient);
  }

  void put_key_gradient(Device& device, const DeviceTensor& of_keys,
                        const DeviceTensor& gradient) const {
    const HeadGroups groups = groups_of_keys(gradient);
    const DeviceTensor all =
        make_tensor(device, {of_keys.shape[0], of_keys.shape[1], groups.columns()}, of_keys.type);
    gather_heads(device, groups, of_keys.view(), all.view());
    put_columns(device, scatter_positions(device, all, context_), columns_of_queries(), gradient);
  }

  AttentionOperation operation_;
  ContextGroup context_;
};

}  // namespace

std::unique_ptr<DeviceModule> make_context_attention(const AttentionOperation& operation,
                                                     const ContextGroup& context) {
  return std::make_unique<ContextAttention>(operation, context);
}

}  // namespace dapple::cuda
