#include <algorithm>

#include "dapple/core/error.h"
#include "estimate/layer_estimate.h"

namespace dapple::estimate {
namespace {

/// The dimensions of attention on one device.
struct AttentionOnDevice {
  const AttentionShape& shape;
  const Division& division;
  bool is_to_encoder = false;
  /// Heads of queries, and of keys and values.
  std::int64_t heads = shape.heads / division.form.tensor;
  std::int64_t kv_heads = shape.latent ? heads : divide_up(shape.kv_heads, division.form.tensor);
  /// Tokens of queries, and of keys and values.
  std::int64_t tokens = division.tokens();
  std::int64_t kv_tokens = is_to_encoder ? division.encoder_tokens() : tokens;
  std::int64_t query_width = heads * shape.width;
  std::int64_t key_width = kv_heads * shape.width;
  std::int64_t value_width = kv_heads * shape.value_width;
  std::int64_t output_width = heads * shape.value_width;

  /// The pairs of a query and a key for each head, whether or not a mask hides them.
  std::int64_t all_pairs() const {
    const Wide others = is_to_encoder ? division.encoder_sequence : division.sequence;
    return divide_up(Wide{division.sequence} * others, division.form.context);
  }
  /// The pairs for which something is computed.
  std::int64_t pairs() const {
    const bool skips = shape.is_causal && division.has_fused_attention && !is_to_encoder;
    if (!skips) return all_pairs();
    const Wide sequence = division.sequence;
    const Wide window = shape.window > 0 ? std::min<Wide>(shape.window, sequence) : sequence;
    const Wide seen = shape.is_chunked ? sequence : 2 * sequence - window;
    return divide_up(window * seen, 2 * division.form.context);
  }
  /// The bytes of queries, keys, values and the output.
  Wide tensors() const {
    return Wide{division.bytes} * (Wide{tokens} * (query_width + output_width) +
                                   Wide{kv_tokens} * (key_width + value_width));
  }
  Wide score_bytes(std::int64_t bytes_per_score) const {
    return Wide{bytes_per_score} * heads * all_pairs();
  }
};

/// Adds the products that make queries, keys and values, and what is kept for them.
void add_inputs(const AttentionOnDevice& on, LayerEstimate& layer) {
  const Division& division = on.division;
  const std::int64_t x = division.bytes;
  const std::int64_t h = division.hidden;
  if (const auto& latent = on.shape.latent) {
    const std::int64_t whole = division.whole_tokens();
    const std::int64_t query_inner = latent->query_rank > 0 ? latent->query_rank : h;
    if (latent->query_rank > 0) layer.add_product({whole, latent->query_rank, h}, x);
    layer.add_product({on.tokens, on.query_width, query_inner}, x);
    layer.add_product({whole, latent->kv_rank + latent->rotary_width, h}, x);
    const std::int64_t up_width = on.heads * (latent->plain_width + on.shape.value_width);
    layer.add_product({on.tokens, up_width, latent->kv_rank}, x);
    const Wide ranks = Wide{latent->query_rank} + latent->kv_rank;
    layer.add(pass(2 * x * whole * ranks));
    layer.kept += Wide{x} * whole * (2 * ranks + latent->rotary_width);
    layer.parameters += Wide{h} * (latent->query_rank + latent->kv_rank + latent->rotary_width) +
                        ranks + Wide{query_inner} * on.query_width +
                        Wide{latent->kv_rank} * up_width;
    if (on.shape.has_input_bias) layer.parameters += ranks + latent->rotary_width;
    return;
  }
  const std::int64_t kv_columns = on.key_width + on.value_width;
  if (on.is_to_encoder) {
    layer.add_product({on.tokens, on.query_width, h}, x);
    layer.add_product({on.kv_tokens, kv_columns, h}, x);
  } else {
    layer.add_product({on.tokens, on.query_width + kv_columns, h}, x);
  }
  layer.parameters += Wide{h} * (on.query_width + kv_columns);
  if (on.shape.has_input_bias) layer.parameters += on.query_width + kv_columns;
}

/// Adds the core, which may be recomputed.
void add_core(const AttentionOnDevice& on, LayerEstimate& layer) {
  const Division& division = on.division;
  const std::int64_t x = division.bytes;
  Work forward{.operations = 0,
               .core = 2 * Wide{on.pairs()} * (on.query_width + on.output_width),
               .moved = on.tensors(),
               .weights = 0};
  Work backward = 2 * forward;
  Wide kept = 0;
  if (division.has_fused_attention) {
    backward.core = (5 * forward.core + 1) / 2;
    kept = 4 * Wide{on.heads} * on.tokens;
    if (division.keeps_core_output_twice) kept += Wide{x} * on.tokens * on.output_width;
  } else {
    const Work scores = pass(on.score_bytes(6 * x + 1));
    forward += scores;
    backward += 2 * scores;
    kept = on.score_bytes(division.has_dropout ? 2 * x + 1 : x);
  }
  layer.forward += forward;
  layer.backward += backward;
  layer.kept += kept;
  if (division.passes_around_ring()) {
    layer.forward_cores.push_back(forward);
    layer.backward_cores.push_back(backward);
  }
  Recomputable& core = layer.part(RecomputedPart::CoreAttention);
  core.exists = true;
  core.kept += kept;
  core.work += forward;
}

/// Returns the bytes that products over all tokens of a device have to gather where tensor ranks
/// have a part of them each.
Wide gathered_input(const AttentionOnDevice& on) {
  const auto& latent = on.shape.latent;
  if (!latent || latent->query_rank == 0) return on.division.activation();
  return Wide{on.division.bytes} * on.tokens *
         (latent->query_rank + latent->kv_rank + latent->rotary_width);
}

/// Adds what gathers the encoder's output, of which tensor ranks have a part each, too.
void add_gather_of_encoded(const AttentionOnDevice& on, LayerEstimate& layer) {
  if (!on.division.form.sequence) return;
  const Wide size = Wide{on.division.bytes} * on.kv_tokens * on.division.hidden;
  layer.kept += on.division.kept_of_gathered(size);
  layer.forward_collectives.push_back(
      {.kind = CollectiveKind::AllGather, .size_per_sample = {capped(size)}});
  layer.backward_collectives.push_back(
      {.kind = CollectiveKind::ReduceScatter, .size_per_sample = {capped(size)}});
}

Collective over_context(CollectiveKind kind, Wide size, std::int64_t count = 1,
                        Beside beside = Beside::Nothing) {
  return {.kind = kind,
          .over = CollectiveMembers::Context,
          .size_per_sample = {capped(size)},
          .count = count,
          .beside = beside};
}

/// Adds what passes keys and values around the ring of context ranks, and in the backward their
/// gradients: each step of the core has those of another rank, and sends them on while it computes.
/// In the backward the first step has no gradients to send yet, and the last one no keys and
/// values; behind it the gradients go to their owner.
void add_ring(const AttentionOnDevice& on, LayerEstimate& layer) {
  const std::int64_t ranks = on.division.form.context;
  const Wide size = Wide{on.division.bytes} * on.kv_tokens * (on.key_width + on.value_width);
  const auto sent = [&](std::int64_t tensors, std::int64_t count, Beside beside) {
    return over_context(CollectiveKind::SendReceive, tensors * size, count, beside);
  };
  const Collective forward = sent(1, ranks - 1, Beside::ForwardCore);
  layer.forward_collectives.push_back(forward);
  layer.part(RecomputedPart::CoreAttention).collectives.push_back(forward);
  layer.backward_collectives.push_back(sent(1, 2, Beside::BackwardCore));
  if (ranks > 2) layer.backward_collectives.push_back(sent(2, ranks - 2, Beside::BackwardCore));
  layer.backward_collectives.push_back(sent(1, 1, Beside::Nothing));
}

/// Adds what gives each context rank whole sequences of its part of the heads, and its part of the
/// sequence of all heads behind the core, and the same of their gradients.
void add_all_to_alls(const AttentionOnDevice& on, LayerEstimate& layer) {
  for (const Wide numbers :
       {Wide{on.tokens} * on.query_width, Wide{on.kv_tokens} * on.key_width,
        Wide{on.kv_tokens} * on.value_width, Wide{on.tokens} * on.output_width}) {
    const Collective one = over_context(CollectiveKind::AllToAll, on.division.bytes * numbers);
    layer.forward_collectives.push_back(one);
    layer.backward_collectives.push_back(one);
  }
}

/// Adds what gathers the keys and values of all context ranks in both passes, and scatters their
/// gradients.
void add_gathers(const AttentionOnDevice& on, LayerEstimate& layer) {
  const Wide sequence = on.is_to_encoder ? on.division.encoder_sequence : on.division.sequence;
  const Wide size = Wide{on.division.bytes} * sequence * (on.key_width + on.value_width);
  const Collective gather = over_context(CollectiveKind::AllGather, size);
  layer.forward_collectives.push_back(gather);
  layer.backward_collectives.push_back(gather);
  layer.backward_collectives.push_back(over_context(CollectiveKind::ReduceScatter, size));
}

/// Adds the exchange of keys and values between context ranks.
void add_context_collectives(const AttentionOnDevice& on, LayerEstimate& layer) {
  if (on.division.form.context == 1) return;
  switch (on.division.context_exchange) {
    case ContextExchange::AllGather:
      return add_gathers(on, layer);
    case ContextExchange::Ring:
      return add_ring(on, layer);
    case ContextExchange::AllToAll:
      return add_all_to_alls(on, layer);
  }
  throw Bug("context ranks exchange nothing");
}

}  // namespace

void add_attention(const AttentionShape& shape, bool is_to_encoder, const Division& division,
                   LayerEstimate& layer) {
  const AttentionOnDevice on{.shape = shape, .division = division, .is_to_encoder = is_to_encoder};
  const std::int64_t x = division.bytes;
  add_inputs(on, layer);
  add_core(on, layer);
  layer.kept += on.tensors();
  layer.add(pass(2 * Wide{x} * on.tokens * on.query_width));
  if (shape.normalizes_heads) {
    const Wide normalized = Wide{x} * on.tokens * (on.query_width + on.key_width);
    layer.add(pass(2 * normalized));
    layer.kept += normalized;
    if (shape.has_head_norm_parameters) layer.parameters += 2 * shape.width;
  }
  layer.add_product({on.tokens, division.hidden, on.output_width}, x);
  layer.parameters += Wide{division.hidden} * on.output_width;
  if (shape.has_output_bias) layer.parameters += division.hidden;
  add_tensor_collectives(division, gathered_input(on), layer);
  if (is_to_encoder) add_gather_of_encoded(on, layer);
  add_context_collectives(on, layer);
}

}  // namespace dapple::estimate
