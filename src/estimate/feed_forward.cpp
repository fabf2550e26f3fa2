#include "estimate/layer_estimate.h"

namespace dapple::estimate {
namespace {

/// The number of matrices into the inner width, and of all matrices.
std::int64_t matrices_in(bool is_gated) {
  return is_gated ? 2 : 1;
}
std::int64_t matrices_of(bool is_gated) {
  return matrices_in(is_gated) + 1;
}

/// Matrix products over rows of tokens into an inner width and back, and the activation function
/// between.
struct InnerLayer {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  bool is_gated = false;
  const Division& division;

  Wide parameters() const { return Wide{matrices_of(is_gated)} * division.hidden * width; }
  Wide tensor() const { return Wide{division.bytes} * rows * width; }
  /// The bytes that are kept of the activation function's results. With a gate the result is a
  /// product, and the framework may keep the activated gate besides.
  Wide kept_activation() const {
    return (is_gated && division.keeps_activated_gates ? 2 : 1) * tensor();
  }
  Wide kept() const { return matrices_in(is_gated) * tensor() + kept_activation(); }
  Work activation() const { return pass(matrices_of(is_gated) * tensor()); }
  /// The products, whose weights are those of one such layer.
  Work products() const {
    return work_of({rows, matrices_in(is_gated) * width, division.hidden}, division.bytes) +
           work_of({rows, division.hidden, width}, division.bytes);
  }
  Work forward() const { return products() + activation(); }
};

Collective over_tensor(CollectiveKind kind, Wide size) {
  return {.kind = kind, .size_per_sample = {capped(size)}};
}

/// Returns what the input of a part needs that is recomputed: with sequence parallelism it is
/// gathered once more.
std::vector<Collective> gathered_again(const Division& division) {
  if (division.form.tensor == 1 || !division.form.sequence) return {};
  return {over_tensor(CollectiveKind::AllGather, division.activation())};
}

/// Adds the all-to-alls that send `rows` rows of each device to their experts and back and, where
/// devices share these, the all-gather of the rows that have come to any of them and the
/// reduce-scatter of what each makes of them.
void add_exchange(const ExpertsShape& shape, const Division& division, std::int64_t rows,
                  std::vector<Collective>& list) {
  if (division.form.experts == 1) return;
  const Wide size = Wide{division.bytes} * rows * division.hidden;
  list.push_back({.kind = CollectiveKind::AllToAll,
                  .over = CollectiveMembers::Experts,
                  .size_per_sample = {capped(size)},
                  .count = 2});
  if (division.merges_copies) {
    list.back().merged = MergedCopies{.copies = shape.chosen, .experts = shape.experts};
  }
  const std::int64_t sharing = division.form.expert_tensor;
  if (sharing == 1) return;
  for (const CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
    list.push_back({.kind = kind,
                    .over = CollectiveMembers::ExpertTensor,
                    .size_per_sample = {capped(sharing * size)}});
  }
}

}  // namespace

void add_tensor_collectives(const Division& division, Wide gathered, LayerEstimate& layer) {
  if (division.form.tensor == 1) return;
  const Wide whole = division.activation();
  if (!division.form.sequence) {
    layer.forward_collectives.push_back(over_tensor(CollectiveKind::AllReduce, whole));
    layer.backward_collectives.push_back(over_tensor(CollectiveKind::AllReduce, whole));
    return;
  }
  layer.kept += division.kept_of_gathered(gathered);
  layer.forward_collectives.push_back(over_tensor(CollectiveKind::AllGather, gathered));
  layer.forward_collectives.push_back(over_tensor(CollectiveKind::ReduceScatter, whole));
  layer.backward_collectives.push_back(over_tensor(CollectiveKind::AllGather, whole));
  layer.backward_collectives.push_back(over_tensor(CollectiveKind::ReduceScatter, gathered));
}

void add_feed_forward(const FeedForwardShape& shape, const Division& division,
                      LayerEstimate& layer) {
  const InnerLayer inner{.rows = division.tokens(),
                         .width = shape.width / division.form.tensor,
                         .is_gated = shape.is_gated,
                         .division = division};
  layer.add_products(inner.products());
  layer.add(inner.activation());
  layer.kept += inner.kept();
  layer.parameters += inner.parameters();
  if (shape.has_bias) {
    layer.parameters += Wide{matrices_in(shape.is_gated)} * inner.width + division.hidden;
  }
  const Wide gathered = division.kept_of_gathered(division.activation());
  layer.part(RecomputedPart::FeedForward) = {.exists = true,
                                             .kept = inner.kept() + gathered,
                                             .work = inner.forward(),
                                             .collectives = gathered_again(division)};
  add_tensor_collectives(division, division.activation(), layer);
}

void add_experts(const ExpertsShape& shape, const Division& division, LayerEstimate& layer) {
  const bool is_spread = division.form.experts > 1;
  const std::int64_t tokens = is_spread ? division.whole_tokens() : division.tokens();
  // Where every device has all experts, their loads do not matter.
  const Factor imbalance = is_spread ? division.imbalance : kOne;
  // What a device sends to experts, and what it has of all that share its own.
  const std::int64_t sent =
      divide_up(Wide{tokens} * shape.chosen * imbalance.billionths, kOne.billionths);
  const std::int64_t sharing = division.form.expert_tensor;
  const InnerLayer inner{.rows = sharing * sent,
                         .width = shape.width / (is_spread ? sharing : division.form.tensor),
                         .is_gated = shape.is_gated,
                         .division = division};
  const std::int64_t experts = shape.experts / division.form.experts;
  const std::int64_t x = division.bytes;

  Work products = inner.products();
  // Every expert on the device has matrices of its own, of which one was counted.
  products.weights += (experts - 1) * Wide{x} * inner.parameters();
  products += work_of({division.whole_tokens(), shape.experts, division.hidden}, x);
  Work others = inner.activation() + pass(4 * Wide{x} * inner.rows * division.hidden);
  Wide kept = inner.kept() + Wide{x} * inner.rows * division.hidden;

  layer.expert_parameters += experts * inner.parameters();
  layer.parameters += experts * inner.parameters() + Wide{division.hidden} * shape.experts;
  if (shape.has_router_bias) layer.parameters += shape.experts;
  Recomputable& all = layer.part(RecomputedPart::Experts);
  if (shape.shared_width > 0) {
    const InnerLayer shared{.rows = division.tokens(),
                            .width = shape.shared_width / division.form.tensor,
                            .is_gated = shape.is_gated,
                            .division = division};
    products += shared.products();
    others += shared.activation();
    kept += shared.kept();
    layer.parameters += shared.parameters();
    if (shape.has_shared_gate) layer.parameters += division.hidden;
  }
  if (shape.shared_width > 0 || !is_spread) {
    all.collectives = gathered_again(division);
    all.kept += division.kept_of_gathered(division.activation());
    add_tensor_collectives(division, division.activation(), layer);
  }
  layer.add_products(products);
  layer.add(others);
  layer.kept += kept;
  all.exists = true;
  all.kept += kept;
  all.work = products + others;
  add_exchange(shape, division, sent, all.collectives);
  add_exchange(shape, division, sent, layer.forward_collectives);
  add_exchange(shape, division, sent, layer.backward_collectives);
  layer.part(RecomputedPart::ExpertActivation) = {.exists = true,
                                                  .kept = inner.kept_activation(),
                                                  .work = inner.activation(),
                                                  .collectives = {}};
}

}  // namespace dapple::estimate
