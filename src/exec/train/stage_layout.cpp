#include "exec/train/stage_layout.h"

#include <algorithm>
#include <span>

#include "dapple/core/error.h"
#include "dapple/schedule/schedule.h"
#include "exec/train/rank_collectives.h"

namespace dapple::exec {
namespace {

constexpr std::size_t kCacheLine = 64 / sizeof(float);

std::size_t round_up_to(std::size_t unit, std::size_t size) {
  return (size + unit - 1) / unit * unit;
}

bool contains(LayerRange layers, std::int32_t layer) {
  return layers.begin <= layer && layer < layers.end;
}

const FormRank& own_rank(const TrainingJob& job, StageIndex stage, const TrainingDevice& device) {
  return device.in(job.plan.stages[stage.position()].form);
}

/// Returns the parameters of the layer in `layers` that uses those of an owner on another stage.
std::span<const nn::ParameterSpec> of_user(const TrainingJob& job, LayerRange layers,
                                           std::int32_t owner, std::int64_t rank) {
  for (std::int32_t layer = layers.begin; layer < layers.end; ++layer) {
    const nn::ModelLayer& user = job.layer(layer, rank);
    if (user.tied_to != owner) continue;
    return std::span(user.module->parameters()).first(user.tied_parameters);
  }
  throw Bug("a stage holds tied parameters that it does not use");
}

/// Returns the range from the first to the last chosen place. Requires: they are contiguous.
template <class Chosen>
ElementRange range_of(const std::vector<TensorPlace>& places, const Chosen& is_chosen) {
  const auto first = std::find_if(places.begin(), places.end(), is_chosen);
  const auto last = std::find_if(places.rbegin(), places.rend(), is_chosen);
  if (first == places.end()) return {};
  return {first->numbers.begin, last->numbers.end};
}

/// Returns the same outside experts and of experts, as far as there are any.
template <class Chosen>
std::vector<CopiedRange> by_copies_of(const std::vector<TensorPlace>& places,
                                      const Chosen& is_chosen) {
  std::vector<CopiedRange> ranges;
  for (const bool is_of_experts : {false, true}) {
    const ElementRange numbers = range_of(places, [&](const TensorPlace& place) {
      return place.is_of_experts == is_of_experts && is_chosen(place);
    });
    if (numbers.size() > 0) ranges.push_back({numbers, is_of_experts});
  }
  return ranges;
}

}  // namespace

StageLayout::StageLayout(const TrainingJob& job, StageIndex stage, const TrainingDevice& device)
    : rank(own_rank(job, stage, device).number),
      holds_shards(own_rank(job, stage, device).shard.ranks > 1),
      tensor_ranks_(own_rank(job, stage, device).layers.tensor.ranks),
      expert_ranks_(own_rank(job, stage, device).layers.experts.ranks *
                    own_rank(job, stage, device).layers.expert_tensor.ranks) {
  place_tensors(job, stage);
  if (holds_shards) {
    choose_shards(own_rank(job, stage, device));
  } else if (is_sharded(job, stage)) {
    choose_sharded(job, stage, device);
  } else {
    choose_updated(job, stage);
  }
  cut_parts();
}

/// Returns the layers whose tensors of one kind are together.
std::vector<LayerRange> StageLayout::placed_together(const TrainingJob& job,
                                                     StageIndex stage) const {
  const LayerRange layers = job.plan.stages[stage.position()].layers;
  std::vector<LayerRange> together;
  std::int32_t end = layers.end;
  const auto add = [&](std::int32_t begin) {
    if (begin < end) together.push_back({begin, end});
    end = begin;
  };
  if (holds_shards) {
    for (std::int32_t layer = layers.end - 1; layer > layers.begin; --layer) add(layer);
  } else {
    for (const std::int32_t first : job.buckets[stage.position()].first_layer) add(first);
  }
  add(layers.begin);
  return together;
}

void StageLayout::place_tensors(const TrainingJob& job, StageIndex stage) {
  const bool is_bucketed = !job.buckets[stage.position()].sizes.empty();
  const LayerRange layers = job.plan.stages[stage.position()].layers;
  std::size_t offset = 0;
  const auto add_layer = [&](std::int32_t layer, std::optional<std::int32_t> tie,
                             bool is_of_experts) {
    const nn::ModelLayer& of_model = job.layer(layer, rank);
    const bool is_copy = !contains(layers, layer);
    // As the stage's own form divides them.
    const std::span<const nn::ParameterSpec> parameters =
        is_copy ? of_user(job, layers, layer, rank) : of_model.own_parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const nn::ParameterSpec& parameter = parameters[i];
      if (parameter.is_of_experts != is_of_experts) continue;
      const auto size = static_cast<std::size_t>(nn::count_of(parameter.shape));
      places.push_back({.name = of_model.name + "." + of_model.own_parameters()[i].name,
                        .layer = layer,
                        .tie = tie,
                        .is_copy = is_copy,
                        .shape = parameter.shape,
                        .part = parameter.part,
                        .numbers = {offset, offset + size},
                        .is_summed_over_ranks = parameter.is_summed_over_ranks,
                        .is_of_experts = parameter.is_of_experts});
      const bool has_neighbours = tie || is_bucketed || holds_shards;
      offset += round_up_to(has_neighbours ? 1 : kCacheLine, size);
    }
  };
  const std::vector<std::int32_t> ties = ties_of(job.plan, {stage});
  const auto owner_of = [&](std::int32_t tie) {
    return job.plan.tied_gradients[static_cast<std::size_t>(tie)].owner.value;
  };
  for (const LayerRange& together : placed_together(job, stage)) {
    for (const bool is_of_experts : {false, true}) {
      for (std::int32_t layer = together.end - 1; layer >= together.begin; --layer) {
        const bool is_tied = std::any_of(ties.begin(), ties.end(),
                                         [&](std::int32_t tie) { return owner_of(tie) == layer; });
        if (!is_tied) add_layer(layer, std::nullopt, is_of_experts);
      }
    }
  }
  for (const std::int32_t tie : ties) {
    if (!holds_shards) offset = round_up_to(kCacheLine, offset);
    add_layer(owner_of(tie), tie, false);
  }
}

/// The replicas of a stage gather tied parameters in a flat ring; buckets have groups of their own.
void StageLayout::choose_sharded(const TrainingJob& job, StageIndex stage,
                                 const TrainingDevice& device) {
  const StagePlan& plan = job.plan.stages[stage.position()];
  const FormRank& form = own_rank(job, stage, device);
  const bool has_shards_of_replicas = job.has_shards_of_replicas(stage);
  const auto add = [&](const CopiedRange& all, const ReductionGroup& group) {
    const nn::GroupRank& copy = form.copies(all.is_of_experts);
    const ElementRange own = part_of_rank(all.numbers, copy.rank, copy.ranks);
    if (copy.ranks > 1) copied.push_back(all);
    if (has_shards_of_replicas) shared.push_back({own, group});
    updated.push_back(
        {has_shards_of_replicas ? shard_of(group, device.device, own) : own, state_size()});
  };
  const auto buckets = static_cast<std::int32_t>(job.buckets[stage.position()].sizes.size());
  const auto add_layers = [&](LayerRange layers, const ReductionGroup& group) {
    for (const CopiedRange& all : by_copies(layers)) add(all, group);
  };
  for (std::int32_t bucket = 0; bucket < buckets; ++bucket) {
    add_layers(layers_of_bucket(job, stage, bucket),
               job.groups.of({ActionKind::AllReduce, bucket, stage}, device.device));
  }
  if (replicas_of(plan) == 1) add_layers(plan.layers, {});
  std::vector<DeviceIndex> replicas = plan.devices;
  std::sort(replicas.begin(), replicas.end());
  for (const std::int32_t tie : ties_of(job.plan, {stage})) {
    add({of_tie(tie)}, {.servers = {replicas}});
  }
}

void StageLayout::choose_updated(const TrainingJob& job, StageIndex stage) {
  const StagePlan& plan = job.plan.stages[stage.position()];
  const std::vector<std::int32_t> ties = ties_of(job.plan, {stage});
  const auto buckets = static_cast<std::int32_t>(job.buckets[stage.position()].sizes.size());
  const auto add = [&](ElementRange numbers) {
    updated.push_back({numbers, round_up_to(kCacheLine, state_size())});
  };
  const bool is_whole = buckets == 0 || optimizer_steps(job.plan, stage) == 1;
  if (is_whole) add(of(plan.layers));
  for (std::int32_t bucket = 0; bucket < buckets && !is_whole; ++bucket) {
    add(of(layers_of_bucket(job, stage, bucket)));
  }
  for (const std::int32_t tie : ties) add(of_tie(tie));
}

void StageLayout::choose_shards(const FormRank& own) {
  std::vector<std::int32_t> owners;
  for (const TensorPlace& place : places) {
    if (!owners.empty() && owners.back() == place.layer) continue;
    owners.push_back(place.layer);
    for (const CopiedRange& all : by_copies_of_owner(place.layer)) {
      const nn::GroupRank& shard = own.shards(all.is_of_experts);
      updated.push_back({part_of_rank(all.numbers, shard.rank, shard.ranks), state_size()});
    }
  }
}

void StageLayout::cut_parts() {
  for (std::size_t place = 0; place < places.size(); ++place) {
    for (std::size_t range = 0; range < updated.size(); ++range) {
      const UpdatedRange& of = updated[range];
      const ElementRange numbers = intersection(places[place].numbers, of.numbers);
      if (numbers.size() == 0) continue;
      parts.push_back({.place = place,
                       .range = range,
                       .numbers = numbers,
                       .state = of.state + numbers.begin - of.numbers.begin});
    }
  }
}

ElementRange StageLayout::of(LayerRange layers) const {
  return range_of(places, [&](const TensorPlace& place) {
    return !place.tie && contains(layers, place.layer);
  });
}

ElementRange StageLayout::of_tie(std::int32_t tie) const {
  return range_of(places, [&](const TensorPlace& place) { return place.tie == tie; });
}

std::vector<CopiedRange> StageLayout::by_copies(LayerRange layers) const {
  if (holds_shards) return {{of(layers)}};
  return by_copies_of(places, [&](const TensorPlace& place) {
    return !place.tie && contains(layers, place.layer);
  });
}

std::vector<CopiedRange> StageLayout::by_copies_of_owner(std::int32_t layer) const {
  return by_copies_of(places, [&](const TensorPlace& place) { return place.layer == layer; });
}

ElementRange StageLayout::of_owner(std::int32_t layer) const {
  return range_of(places, [&](const TensorPlace& place) { return place.layer == layer; });
}

ElementRange StageLayout::held(ElementRange numbers) const {
  if (!holds_shards) return numbers;
  ElementRange held;
  for (const UpdatedRange& range : updated) {
    const ElementRange own = intersection(range.numbers, numbers);
    if (own.size() == 0) continue;
    const std::size_t begin = range.state + own.begin - range.numbers.begin;
    if (held.size() == 0) held.begin = begin;
    held.end = begin + own.size();
  }
  return held;
}

bool StageLayout::is_repeated(const TensorPlace& place) const {
  const bool is_divided = holds_shards || !copied.empty();
  if (place.is_of_experts) return !is_divided && rank >= expert_ranks_;
  const bool is_first_of_copies = is_divided || rank < tensor_ranks_;
  return !is_first_of_copies || (rank % tensor_ranks_ > 0 && !place.part);
}

std::size_t StageLayout::first_held(ElementRange numbers) const {
  if (!holds_shards) return numbers.begin;
  for (const UpdatedRange& range : updated) {
    const ElementRange own = intersection(range.numbers, numbers);
    if (own.size() > 0) return own.begin;
  }
  return numbers.begin;
}

bool is_sharded(const TrainingJob& job, StageIndex stage) {
  return job.plan.parallelism.shards_optimizer &&
         (replicas_of(job.plan.stages[stage.position()]) > 1 || job.scatters_copies(stage));
}

ElementRange intersection(ElementRange a, ElementRange b) {
  const std::size_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

LayerRange layers_of_bucket(const TrainingJob& job, StageIndex stage, std::int32_t bucket) {
  const LayerRange layers = job.plan.stages[stage.position()].layers;
  const std::vector<std::int32_t>& filled_by = job.buckets[stage.position()].first_layer;
  if (filled_by.empty()) return layers;
  const auto number = static_cast<std::size_t>(bucket);
  return {filled_by[number], number == 0 ? layers.end : filled_by[number - 1]};
}

}  // namespace dapple::exec
