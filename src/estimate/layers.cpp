// Whole layers: blocks, the embedding and the head, and what recomputation makes of them.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "dapple/profile/variants.h"
#include "estimate/layer_estimate.h"

namespace dapple::estimate {
namespace {

/// The largest batch for which a launch floor may decide a layer's time.
constexpr std::int64_t kMostSamplesAtFloor = std::int64_t{1} << 20;

Collective over_tensor_ranks(CollectiveKind kind, Wide size, std::int64_t count = 1) {
  return {.kind = kind, .size_per_sample = {capped(size)}, .count = count};
}

std::int64_t norm_parameters(std::int64_t hidden, bool shifts) {
  return shifts ? 2 * hidden : hidden;
}

/// Adds normalizations, residual additions and dropout.
void add_norms(const BlockShape& shape, const Division& division, LayerEstimate& layer) {
  const std::int64_t x = division.bytes;
  const Wide vectors = Wide{division.whole_tokens()} * division.hidden;
  const std::int64_t norms = shape.norms_before + shape.norms_behind;
  const std::int64_t additions = shape.cross_attention ? 3 : 2;
  layer.add(pass(x * vectors * (2 * norms + 3 * additions + 1)));
  layer.kept += x * vectors * (2 * shape.norms_before + shape.norms_behind);
  if (division.has_dropout) layer.kept += additions * vectors;
  layer.parameters += norms * norm_parameters(division.hidden, shape.norms_shift);
  layer.part(RecomputedPart::Norm) = {.exists = true,
                                      .kept = x * vectors * shape.norms_before,
                                      .work = pass(2 * x * vectors * shape.norms_before),
                                      .collectives = {}};
}

std::int64_t count_of(const std::vector<Collective>& collectives) {
  std::int64_t count = 0;
  for (const Collective& each : collectives) count += each.count;
  return count;
}

/// The work of a layer in one direction, and the least time that it takes.
struct Direction {
  const Work& work;
  Duration floor;

  Duration time(const Rates& rates, std::int64_t samples) const {
    return std::max(floor, rates.time_of_work(work, samples));
  }
};

/// Returns the largest batch, at most kMostSamplesAtFloor, that takes no longer than the floor; 0
/// if there is none.
std::int64_t most_samples_at_floor(const Direction& direction, const Rates& rates) {
  std::int64_t fits = 0;
  std::int64_t step = kMostSamplesAtFloor;
  for (; step > 0; step /= 2) {
    const std::int64_t samples = fits + step;
    if (samples <= kMostSamplesAtFloor &&
        rates.time_of_work(direction.work, samples) <= direction.floor) {
      fits = samples;
    }
  }
  return fits;
}

/// Returns the time of the shortest of the cores; nothing without any.
Duration shortest(const std::vector<Work>& cores, const Rates& rates, std::int64_t samples) {
  if (cores.empty()) return {};
  Duration least = Duration::infinite();
  for (const Work& core : cores) least = std::min(least, rates.time_of_work(core, samples));
  return least;
}

/// What cannot be divided, of which the first is kept.
class FirstFault {
 public:
  void add(std::string text) {
    if (text_.empty()) text_ = std::move(text);
  }
  void need(std::int64_t count, const char* what, std::int64_t parts, const char* kind) {
    if (count % parts == 0) return;
    add(indivisible_text(count, what, parts, kind));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

std::string division_fault(const BlockShape& block, const Division& division) {
  const Parallelism& form = division.form;
  FirstFault fault;
  const auto need_split = [&](std::int64_t count, const char* what) {
    fault.need(count, what, form.tensor, "tensor");
  };
  const auto need_heads = [&](const AttentionShape& attention) {
    const std::int64_t kv = attention.latent ? attention.heads : attention.kv_heads;
    need_split(attention.heads, "attention heads");
    // Each may also be copied to as many ranks.
    if (form.tensor % kv != 0) need_split(kv, "heads of keys and values");
    if (division.context_exchange != ContextExchange::AllToAll) return;
    // A rank has whole sequences of some of the heads on a device.
    fault.need(divide_up(kv, form.tensor), "heads of keys and values on a device", form.context,
               "context");
  };
  need_heads(block.attention);
  if (block.cross_attention) {
    need_heads(*block.cross_attention);
    fault.need(division.encoder_sequence, "tokens of the encoder", form.context, "context");
    if (form.sequence) need_split(division.encoder_tokens(), "tokens of the encoder on a device");
  }
  fault.need(division.sequence, "tokens", form.context, "context");
  // A rank has one of the first parts and one of the last, so that all compute as much, unless it
  // computes whole sequences.
  if (form.context > 1 && block.attention.is_causal &&
      division.context_exchange != ContextExchange::AllToAll &&
      division.sequence % (2 * form.context) != 0) {
    fault.add(
        fmt::format("{} tokens cannot be divided into two parts for each of {} "
                    "context-parallel ranks",
                    division.sequence, form.context));
  }
  if (form.sequence) need_split(division.tokens(), "tokens on a device");
  need_split(division.hidden, "numbers of a hidden vector");
  if (block.feed_forward) {
    need_split(block.feed_forward->width, "columns of the feed-forward layer");
    return fault.text();
  }
  const ExpertsShape& experts = *block.experts;
  if (experts.shared_width > 0) need_split(experts.shared_width, "columns of shared experts");
  fault.need(experts.width, "columns of an expert", form.expert_tensor, "expert-tensor");
  if (form.experts == 1) {
    need_split(experts.width, "columns of an expert");
  } else {
    fault.need(experts.experts, "experts", form.experts, "expert");
    if (form.tensor > 1 && !form.sequence) {
      fault.add("experts beside tensor parallelism need sequence parallelism");
    }
  }
  return fault.text();
}

LayerEstimate block_of(const BlockShape& shape, const Division& division) {
  LayerEstimate layer;
  add_attention(shape.attention, false, division, layer);
  if (shape.cross_attention) {
    add_attention(*shape.cross_attention, true, division, layer);
    const std::int64_t encoder_tokens = division.form.sequence
                                            ? division.encoder_tokens() / division.form.tensor
                                            : division.encoder_tokens();
    const Wide encoded = Wide{division.bytes} * encoder_tokens * division.hidden;
    layer.kept += encoded;
    layer.input += encoded;
  }
  if (shape.feed_forward) add_feed_forward(*shape.feed_forward, division, layer);
  if (shape.experts) add_experts(*shape.experts, division, layer);
  add_norms(shape, division, layer);
  layer.parameters += shape.other_parameters;
  layer.output = Wide{division.bytes} * division.whole_tokens() * division.hidden;
  layer.input += layer.output;
  return layer;
}

LayerEstimate embedding_of(const EmbeddingShape& shape, const Division& division) {
  LayerEstimate layer;
  const std::int64_t x = division.bytes;
  const Wide vectors = Wide{division.whole_tokens()} * division.hidden;
  const Work moved = pass(10 * Wide{x} * division.tokens() * division.hidden);
  layer.forward += moved;
  layer.backward += moved;
  layer.parameters +=
      Wide{division.hidden} * (division.part_of_vocabulary(shape.vocabulary) + shape.other_vectors);
  if (shape.has_norm) layer.parameters += 2 * division.hidden;
  if (shape.patches > 0) {
    const std::int64_t patches = divide_up(shape.patches, division.form.context);
    const Work product = work_of({patches, division.hidden, shape.patch_numbers}, x);
    layer.forward += product;
    // An image has no gradient.
    layer.backward += product;
    layer.weight_gradient += product;
    layer.parameters += Wide{division.hidden} * (shape.patch_numbers + 1);
    layer.kept += Wide{x} * patches * shape.patch_numbers;
  }
  if (division.has_dropout) layer.kept += vectors;
  layer.output = x * vectors;
  if (division.form.tensor == 1 || shape.vocabulary == 0) return layer;
  const Wide size = division.activation();
  if (division.form.sequence) {
    layer.forward_collectives = {over_tensor_ranks(CollectiveKind::ReduceScatter, size)};
    layer.backward_collectives = {over_tensor_ranks(CollectiveKind::AllGather, size)};
  } else {
    layer.forward_collectives = {over_tensor_ranks(CollectiveKind::AllReduce, size)};
  }
  return layer;
}

LayerEstimate head_of(const HeadShape& shape, const Division& division) {
  LayerEstimate layer;
  const std::int64_t x = division.bytes;
  const std::int64_t h = division.hidden;
  const bool is_divided = division.form.tensor > 1 && !shape.is_of_one_token;
  const std::int64_t rows = shape.is_of_one_token ? 1 : division.tokens();
  const std::int64_t columns =
      shape.is_of_one_token ? shape.outputs : division.part_of_vocabulary(shape.outputs);
  const Wide vectors = Wide{division.whole_tokens()} * h;
  const Wide outputs = Wide{rows} * columns;
  layer.add_product({rows, columns, h}, x);
  layer.add(pass(2 * x * vectors));
  layer.forward += pass(11 * outputs);
  layer.backward += pass(11 * outputs);
  if (shape.has_transformation) {
    layer.add_product({division.whole_tokens(), h, h}, x);
    layer.parameters += Wide{h} * h + h + 2 * h;
    layer.kept += x * vectors;
  }
  if (shape.has_norm) layer.parameters += norm_parameters(h, shape.norm_shifts);
  if (!shape.is_tied) layer.parameters += Wide{h} * columns;
  if (shape.has_bias) layer.parameters += columns;
  // The loss keeps the logits in single precision; they have the format of products in its forward
  // only, and their gradients in its backward.
  layer.kept += 2 * x * vectors + 4 * outputs;
  layer.workspace += x * outputs;
  if (!is_divided) return layer;
  const Wide size = division.activation();
  layer.forward_collectives = {
      over_tensor_ranks(CollectiveKind::AllReduce, 4 * Wide{division.tokens()}, 3)};
  if (division.form.sequence) {
    layer.kept += division.kept_of_gathered(size);
    layer.forward_collectives.push_back(over_tensor_ranks(CollectiveKind::AllGather, size));
    layer.backward_collectives = {over_tensor_ranks(CollectiveKind::ReduceScatter, size)};
  } else {
    layer.backward_collectives = {over_tensor_ranks(CollectiveKind::AllReduce, size)};
  }
  return layer;
}

LayerEstimate recomputed(const LayerEstimate& layer, RecomputedParts parts) {
  LayerEstimate result = layer;
  const auto recompute = [&](Wide dropped, const Work& work,
                             const std::vector<Collective>& collectives) {
    result.kept -= dropped;
    result.workspace += dropped;
    result.backward += work;
    result.backward_collectives.insert(result.backward_collectives.end(), collectives.begin(),
                                       collectives.end());
  };
  if (parts.contains(RecomputedPart::Layer)) {
    recompute(layer.kept - layer.input, layer.forward, layer.forward_collectives);
    ++result.launches_of_backward;
    return result;
  }
  for (const RecomputedPart which : kRecomputedParts) {
    const Recomputable& part = layer.part(which);
    if (!parts.contains(which) || !part.exists) continue;
    recompute(part.kept, part.work, part.collectives);
  }
  return result;
}

std::vector<Measurement> measurements_of(const LayerEstimate& layer, const Rates& rates) {
  std::set<std::int64_t> batches{1};
  std::int64_t last = 0;
  const auto floor = [&](std::int64_t passes, const std::vector<Collective>& collectives) {
    return passes * rates.launch_floor + count_of(collectives) * rates.collective_floor;
  };
  const Direction forwards{layer.forward, floor(1, layer.forward_collectives)};
  const Direction backwards{layer.backward,
                            floor(layer.launches_of_backward, layer.backward_collectives)};
  for (const Direction* const direction : {&forwards, &backwards}) {
    const std::int64_t most = most_samples_at_floor(*direction, rates);
    if (most > 0) batches.insert({most, most + 1});
    last = std::max(last, most);
  }
  batches.insert(2 * (last + 1));
  std::vector<Measurement> measurements;
  for (const std::int64_t batch : batches) {
    const auto size = [&](Wide per_sample) { return Bytes{capped(per_sample * batch)}; };
    const Duration backward = backwards.time(rates, batch);
    const Duration weights = std::min(backward, rates.time_of_work(layer.weight_gradient, batch));
    measurements.push_back({.batch_size = batch,
                            .forward = forwards.time(rates, batch),
                            .backward = backward,
                            .input_gradient = backward - weights,
                            .weight_gradient = weights,
                            .core = {shortest(layer.forward_cores, rates, batch),
                                     shortest(layer.backward_cores, rates, batch)},
                            .output = size(layer.output),
                            .stash = size(layer.kept),
                            .workspace = size(layer.workspace)});
  }
  return measurements;
}

}  // namespace dapple::estimate
