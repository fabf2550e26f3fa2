#include "dapple/profile/variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/profile/boundary_shares.h"

namespace dapple {
namespace {

bool has_expert_variants(const Layer& layer) {
  return std::any_of(layer.variants.begin(), layer.variants.end(),
                     [](const LayerVariant& some) { return some.parallelism.experts > 1; });
}

bool recomputes_parts(const Layer& layer) {
  return std::any_of(layer.variants.begin(), layer.variants.end(),
                     [](const LayerVariant& some) { return !some.parallelism.recomputes.none(); });
}

/// Returns the form as far as it concerns the layer: without shards, and without degrees of experts
/// and recomputed parts that no variant of the layer has.
Parallelism form_of_layer(const Layer& layer, Parallelism form) {
  form = form_of_layers(form);
  if (!has_expert_variants(layer)) {
    form.experts = 1;
    form.expert_tensor = 1;
  }
  if (!recomputes_parts(layer)) form.recomputes = {};
  return form;
}

/// Returns the layer's own variant for the form, or nullptr.
const LayerVariant* variant_of(const Layer& layer, const Parallelism& whole_form) {
  const Parallelism form = form_of_layer(layer, whole_form);
  const auto found =
      std::find_if(layer.variants.begin(), layer.variants.end(),
                   [&](const LayerVariant& some) { return some.parallelism == form; });
  return found == layer.variants.end() ? nullptr : &*found;
}

/// Whether the layer itself runs under the form: it is not divided and keeps all, but may have
/// replicas.
bool runs_whole(const Layer& layer, const Parallelism& form) {
  return form_of_layer(layer, form).is_none();
}

/// Makes the layer its variant.
void take_variant(Layer& layer, const Parallelism& form) {
  if (!runs_whole(layer, form)) {
    const LayerVariant* const found = variant_of(layer, form);
    check(found != nullptr, "a layer has no variant for the parallelism of its plan");
    LayerVariant variant = *found;
    layer.divides_output = divides_output(layer, variant);
    layer.parameters = variant.parameters;
    layer.expert_parameters = variant.expert_parameters;
    layer.fixed_overhead = variant.fixed_overhead;
    layer.measurements = std::move(variant.measurements);
    layer.other_times = std::move(variant.other_times);
    layer.forward_collectives = std::move(variant.forward_collectives);
    layer.backward_collectives = std::move(variant.backward_collectives);
    layer.recomputes = !variant.parallelism.recomputes.none();
  }
  layer.variants.clear();
}

/// Whether some collective of a variant is over these ranks. Those that share an expert may be its
/// tensor ranks.
bool states_collectives(const LayerVariant& variant, CollectiveMembers members) {
  const bool may_be_tensor = members == CollectiveMembers::ExpertTensor &&
                             variant.parallelism.expert_tensor == variant.parallelism.tensor;
  const auto is_over = [&](const Collective& some) {
    return some.over == members || (may_be_tensor && some.over == CollectiveMembers::Tensor);
  };
  return std::any_of(variant.forward_collectives.begin(), variant.forward_collectives.end(),
                     is_over) ||
         std::any_of(variant.backward_collectives.begin(), variant.backward_collectives.end(),
                     is_over);
}

/// Whether a variant cannot do without collectives over these ranks, of which there are several, as
/// they hold different parameters. Tensor ranks that divide a sequence may share a layer of experts
/// without any.
bool needs_collectives(const Layer& layer, const LayerVariant& variant, CollectiveMembers members) {
  switch (members) {
    case CollectiveMembers::Tensor:
      return variant.parallelism.experts == 1 && variant.parameters < layer.parameters;
    case CollectiveMembers::Context:
      return false;
    case CollectiveMembers::Experts:
    case CollectiveMembers::ExpertTensor:
      return variant.expert_parameters > Bytes{};
  }
  throw Bug("unknown members of a collective");
}

/// What a layer gathers, its own parameters and those that it uses of another layer, which are
/// outside experts.
struct GatheredParameters {
  Bytes outside_experts;
  Bytes experts;

  Bytes all() const { return outside_experts + experts; }
};

GatheredParameters gathered_by(const ModelProfile& profile, std::size_t layer) {
  const Layer& own = profile.layers[layer];
  GatheredParameters gathered{own.parameters - own.expert_parameters, own.expert_parameters};
  if (const auto owner = tied_to(profile, index_at<LayerIndex>(layer))) {
    gathered.outside_experts += profile.layers[owner->position()].parameters;
  }
  return gathered;
}

/// Calls `use` with each collective of a layer or variant.
template <class Figures, class Use>
void for_each_collective(const Figures& figures, const Use& use) {
  for (const auto* list : {&figures.forward_collectives, &figures.backward_collectives}) {
    for (const Collective& some : *list) use(some);
  }
}

/// Calls `use` with each collective of the layers in one form.
template <class Use>
void for_each_collective(const ModelProfile& profile, const Parallelism& form, const Use& use) {
  for (const Layer& layer : profile.layers) {
    const LayerVariant* const variant = variant_of(layer, form);
    if (variant != nullptr) {
      for_each_collective(*variant, use);
    } else {
      for_each_collective(layer, use);
    }
  }
}

/// Returns what adds the kind of a collective over context ranks.
auto adding_context_kinds(std::set<CollectiveKind>& kinds) {
  return [&kinds](const Collective& some) {
    if (some.over == CollectiveMembers::Context) kinds.insert(some.kind);
  };
}

/// Returns the way to exchange keys and values that has these kinds of collectives.
std::optional<ContextExchange> exchange_by(const std::set<CollectiveKind>& kinds) {
  if (kinds.contains(CollectiveKind::SendReceive)) return ContextExchange::Ring;
  if (kinds.contains(CollectiveKind::AllGather)) return ContextExchange::AllGather;
  if (kinds.contains(CollectiveKind::AllToAll)) return ContextExchange::AllToAll;
  return std::nullopt;
}

}  // namespace

std::string indivisible_text(std::int64_t count, const char* what, std::int64_t ranks,
                             const char* kind) {
  return fmt::format("{} {} cannot be divided among {} {}-parallel ranks", count, what, ranks,
                     kind);
}

std::string indivisible_blocks(const std::vector<DividedBlocks>& blocks, const Parallelism& degrees,
                               std::optional<ContextExchange> exchange) {
  for (const DividedBlocks& block : blocks) {
    if (block.attention_heads % degrees.tensor != 0) {
      return indivisible_text(block.attention_heads, "attention heads", degrees.tensor, "tensor");
    }
    // Each may also be copied to as many ranks.
    if (block.key_value_heads % degrees.tensor != 0 &&
        degrees.tensor % block.key_value_heads != 0) {
      return indivisible_text(block.key_value_heads, "heads of keys and values", degrees.tensor,
                              "tensor");
    }
    // Each rank computes all positions for some of the heads on its device.
    const std::int64_t on_device = divide_up(block.key_value_heads, degrees.tensor);
    if (exchange == ContextExchange::AllToAll && on_device % degrees.context != 0) {
      return indivisible_text(on_device, "heads of keys and values on a device", degrees.context,
                              "context");
    }
    if (block.experts % degrees.experts != 0) {
      return indivisible_text(block.experts, "experts", degrees.experts, "expert");
    }
  }
  const bool has_experts = std::any_of(blocks.begin(), blocks.end(),
                                       [](const DividedBlocks& some) { return some.experts > 0; });
  if (degrees.experts == 1 || blocks.empty() || has_experts) return "";
  return fmt::format("no block has experts that could be divided among {} expert-parallel ranks",
                     degrees.experts);
}

std::optional<ContextExchange> context_exchange_of(const ModelProfile& profile) {
  std::set<CollectiveKind> kinds;
  const auto add = adding_context_kinds(kinds);
  for (const Layer& layer : profile.layers) {
    for_each_collective(layer, add);
    for (const LayerVariant& variant : layer.variants) for_each_collective(variant, add);
  }
  return exchange_by(kinds);
}

std::optional<ContextExchange> context_exchange_of(const ModelProfile& profile,
                                                   const Parallelism& form) {
  std::set<CollectiveKind> kinds;
  for_each_collective(profile, form, adding_context_kinds(kinds));
  return exchange_by(kinds);
}

bool merges_copies(const ModelProfile& profile, const Parallelism& form) {
  bool merges = false;
  for_each_collective(profile, form,
                      [&](const Collective& some) { merges = merges || some.merged.has_value(); });
  return merges;
}

std::vector<Parallelism> parallelisms_of(const ModelProfile& profile) {
  std::set<Parallelism> forms{{}};
  for (const Layer& layer : profile.layers) {
    for (const LayerVariant& variant : layer.variants) forms.insert(variant.parallelism);
  }
  std::vector<Parallelism> common;
  for (const Parallelism& form : forms) {
    if (layer_without(profile, form).empty()) common.push_back(form);
  }
  return common;
}

bool recomputes_in_some_form(const ModelProfile& profile) {
  const std::vector<Parallelism> forms = parallelisms_of(profile);
  return std::any_of(forms.begin(), forms.end(),
                     [](const Parallelism& form) { return !form.recomputes.none(); });
}

std::string layer_without(const ModelProfile& profile, const Parallelism& parallelism) {
  for (const Layer& layer : profile.layers) {
    if (runs_whole(layer, parallelism)) continue;
    if (variant_of(layer, parallelism) == nullptr) return layer.name;
  }
  return "";
}

std::string layer_without_collectives(const ModelProfile& profile, const Parallelism& parallelism,
                                      CollectiveMembers members) {
  const bool is_of_experts =
      members == CollectiveMembers::Experts || members == CollectiveMembers::ExpertTensor;
  const Layer* first = nullptr;
  bool are_stated = false;
  for (const Layer& layer : profile.layers) {
    const LayerVariant* const variant = variant_of(layer, parallelism);
    if (variant == nullptr) continue;
    if (is_of_experts && variant->parallelism.experts == 1) continue;
    if (states_collectives(*variant, members)) {
      are_stated = true;
    } else if (needs_collectives(layer, *variant, members)) {
      return layer.name;
    } else if (first == nullptr) {
      first = &layer;
    }
  }
  return are_stated || first == nullptr ? "" : first->name;
}

std::int64_t layers_that_recompute(const ModelProfile& profile, const Parallelism& parallelism) {
  return std::count_if(profile.layers.begin(), profile.layers.end(), [&](const Layer& layer) {
    const LayerVariant* const variant = variant_of(layer, parallelism);
    return variant != nullptr && !variant->parallelism.recomputes.none();
  });
}

std::vector<ShardedLayer> sharded_layers(const ModelProfile& profile, const GroupShape& group) {
  const auto time = [&](CollectiveKind kind, const GatheredParameters& parameters, Factor factor) {
    return collective_time(kind, scale_up(parameters.outside_experts, factor), group.copies) +
           collective_time(kind, scale_up(parameters.experts, factor), group.expert_copies);
  };
  const auto by_nic = [&](CollectiveKind kind, const GatheredParameters& parameters,
                          Factor factor) {
    return nic_use(kind, scale_up(parameters.outside_experts, factor), group.copies) +
           nic_use(kind, scale_up(parameters.experts, factor), group.expert_copies);
  };
  const Factor gradient = profile.optimizer.gradient_bytes_per_parameter_byte;
  std::vector<Bytes> wholes;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    wholes.push_back(gathered_by(profile, l).all());
  }
  std::vector<ShardedLayer> sharded;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const GatheredParameters parameters = gathered_by(profile, l);
    Bytes neighbour;
    if (l > 0) neighbour = wholes[l - 1];
    if (l + 1 < wholes.size()) neighbour = std::max(neighbour, wholes[l + 1]);
    sharded.push_back(
        {.gather = time(CollectiveKind::AllGather, parameters, kOne),
         .scatter = time(CollectiveKind::ReduceScatter, parameters, gradient),
         .gather_by_nic = by_nic(CollectiveKind::AllGather, parameters, kOne),
         .scatter_by_nic = by_nic(CollectiveKind::ReduceScatter, parameters, gradient),
         .working_set = wholes[l] + neighbour + scale_up(wholes[l], gradient)});
  }
  return sharded;
}

ModelProfile with_parallelism(const ModelProfile& profile, const Parallelism& parallelism,
                              const GroupShape& group) {
  if (parallelism.is_none()) return profile;
  ModelProfile shared = profile;
  shared.tensor_parallel = parallelism.tensor * profile.tensor_parallel;
  shared.parallelism = parallelism;
  shared.group = group;
  for (Layer& layer : shared.layers) take_variant(layer, parallelism);
  if (!group.shards_all_state) return shared;
  const std::vector<ShardedLayer> sharded = sharded_layers(shared, group);
  for (std::size_t l = 0; l < sharded.size(); ++l) shared.layers[l].sharded = sharded[l];
  return shared;
}

const ModelProfile& in_form(const ModelProfile& profile, FormIndex form) {
  return form == FormIndex{} ? profile : profile.stage_forms[form.previous().position()];
}

}  // namespace dapple
