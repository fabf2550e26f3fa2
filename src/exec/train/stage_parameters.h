// The parameters of a stage's layers on one device, their gradients and the optimizer's state, by
// layer, bucket or tie. Math is as for ModelBackend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/exec/run/backend.h"
#include "dapple/exec/train/named_tensors.h"
#include "exec/train/named_tensors.h"
#include "exec/train/rank_collectives.h"
#include "exec/train/stage_layout.h"

namespace dapple::exec {

template <class Math>
class StageParameters {
 public:
  using Numbers = typename Math::Numbers;

  /// Makes initial parameters.
  StageParameters(Math& math, const TrainingJob& job, StageIndex stage,
                  const TrainingDevice& device)
      : layers_(job.plan.stages[stage.position()].layers),
        states_(static_cast<std::size_t>(nn::state_count(job.settings.optimizer.kind))),
        own_(device.in(job.plan.stages[stage.position()].form)),
        layout_(job, stage, device),
        arrays_(math, layout_, job.settings.optimizer) {
    initialize(job);
    show(job);
  }

  /// Parameters or gradients of one layer, its own and those of the layer that it is tied to, in
  /// the order of its module's parameters().
  template <class View>
  class OfLayer {
   public:
    std::span<const View> views() const { return views_; }

   private:
    friend StageParameters;
    /// Whole tensors, where only shards are held.
    std::vector<typename Math::Whole> gathered_;
    std::vector<View> own_;
    std::span<const View> views_;
  };

  /// Returns the parameters of a layer, gathered from all shards where the stage holds only one.
  OfLayer<typename Math::ParameterView> parameters(Math& math, std::int32_t layer) {
    OfLayer<typename Math::ParameterView> all;
    all.views_ = of(layer).parameters;
    if (layout_.holds_shards) gather(math, layer, all);
    return all;
  }
  /// Returns where to add the gradients of a layer; add_shards() must follow.
  OfLayer<Numbers> gradients(Math& math, std::int32_t layer) {
    OfLayer<Numbers> sums;
    sums.views_ = of(layer).gradients;
    if (!layout_.holds_shards) return sums;
    for (const CopiedRange& whole : of(layer).shared) {
      sums.gathered_.push_back(math.make_whole_gradients(whole.numbers.size()));
      add_views(whole.numbers, sums);
    }
    sums.views_ = sums.own_;
    return sums;
  }
  /// Adds the sum over all ranks of such gradients to this rank's shard, where it holds only that.
  void add_shards(Math& math, std::int32_t layer, OfLayer<Numbers> sums) {
    for (std::size_t i = 0; i < sums.gathered_.size(); ++i) {
      const CopiedRange& whole = of(layer).shared[i];
      add_shard(math, whole.is_of_experts, Math::numbers_in(sums.gathered_[i]),
                arrays_.gradients(whole.numbers));
    }
  }

  /// Return the gradients of the untied parameters of layers, as far as there are any outside
  /// experts and of experts that other ranks do not have, or those of a tie.
  /// A rank that holds the same parameters as others gets only the part of these gradients that it
  /// reduces over replicas.
  std::vector<Numbers> gradients_of(LayerRange layers) {
    std::vector<Numbers> gradients;
    for (const CopiedRange& all : layout_.by_copies(layers)) gradients.push_back(reduced_part(all));
    return gradients;
  }
  Numbers gradients_of_tie(std::int32_t tie) { return reduced_part({layout_.of_tie(tie)}); }
  /// Sum complete gradients over the tensor-parallel ranks of which each has computed a part: the
  /// untied ones of a layer, or those of all ties.
  void sum_over_ranks(Math& math, std::int32_t layer) {
    for (const TensorPlace& place : layout_.places) {
      if (place.layer == layer && !place.tie) sum_parts(math, place);
    }
  }
  void sum_ties_over_ranks(Math& math) {
    for (const TensorPlace& place : layout_.places) {
      if (place.tie) sum_parts(math, place);
    }
  }
  /// Sum complete gradients over ranks that hold the same, each of which then has the part that it
  /// reduces over replicas: the untied ones of layers, or those of a tie.
  void scatter_copies(Math& math, LayerRange layers) {
    for (const CopiedRange& all : layout_.by_copies(layers)) scatter_range(math, all);
  }
  void scatter_copies_of_tie(Math& math, std::int32_t tie) {
    const CopiedRange all{layout_.of_tie(tie)};
    scatter_range(math, all);
  }
  /// Give all these ranks the reduced gradients.
  void gather_copies(Math& math, LayerRange layers) {
    for (const CopiedRange& all : layout_.by_copies(layers)) gather_range(math, all);
  }
  void gather_copies_of_tie(Math& math, std::int32_t tie) {
    const CopiedRange all{layout_.of_tie(tie)};
    gather_range(math, all);
  }
  void clear_gradients() { arrays_.clear_gradients(); }
  void scale_gradients(float factor) { arrays_.scale_gradients(factor); }

  /// Returns, for each layer, the sum of the squares of the gradients of the layer's own
  /// parameters, as far as this replica updates them and no earlier tensor-parallel rank has the
  /// same.
  std::vector<double> squares() {
    std::vector<std::size_t> layers;
    std::vector<ElementRange> ranges;
    std::optional<std::size_t> summed;  // the updated range of the last of `ranges`
    for (const UpdatedPart& part : layout_.parts) {
      const TensorPlace& place = layout_.places[part.place];
      if (place.is_copy || layout_.is_repeated(place)) {
        summed.reset();
        continue;
      }
      const auto layer = static_cast<std::size_t>(place.layer - layers_.begin);
      if (summed == part.range && layers.back() == layer) {
        ranges.back().end = part.numbers.end;  // gaps between tensors are zeros
        continue;
      }
      layers.push_back(layer);
      ranges.push_back(part.numbers);
      summed = part.range;
    }
    const std::vector<double> of_ranges = arrays_.squares(ranges);
    std::vector<double> squares(static_cast<std::size_t>(layers_.size()));
    for (std::size_t i = 0; i < layers.size(); ++i) squares[layers[i]] += of_ranges[i];
    return squares;
  }

  /// Make the optimizer's `number`th step, counted from one, on the untied parameters of layers, or
  /// on those of ties, as far as this replica updates them.
  void step(LayerRange layers, std::int64_t number) { arrays_.update(layout_.of(layers), number); }
  void step_tied(const std::vector<std::int32_t>& ties, std::int64_t number) {
    for (const std::int32_t tie : ties) arrays_.update(layout_.of_tie(tie), number);
  }

  /// Returns the parameters of which each replica has updated its shard.
  std::vector<Gathered> gathered() {
    std::vector<Gathered> gathered;
    for (const SharedRange& range : layout_.shared) {
      gathered.push_back({range.group, arrays_.buffer(range.numbers)});
    }
    return gathered;
  }

  /// Makes later computations use what has been gathered.
  void take_gathered() {
    for (const SharedRange& range : layout_.shared) arrays_.take_replaced(range.numbers);
  }
  /// Gathers parameters of which each rank that holds the same has updated a part, or has gathered
  /// it from replicas.
  void gather_updated_copies(Math& math) {
    for (const CopiedRange& all : layout_.copied) {
      math.gather(*own_.copies(all.is_of_experts).group, arrays_.replaced(own_part(all)),
                  arrays_.replaced(all.numbers));
      arrays_.take_replaced(all.numbers);
    }
  }

  /// See ModelBackend::warm_up().
  void warm_up() { arrays_.warm_up(); }

  /// Returns all values of a kind, on the host.
  std::span<const float> values(TensorKind kind) { return arrays_.values(kind); }

  void restore(const NamedTensors& tensors) {
    for (const TensorPlace& place : layout_.places) {
      arrays_.assign(place, HeldTensor(tensors, place.name, place).values());
    }
    for (const UpdatedPart& part : layout_.parts) {
      const TensorPlace& place = layout_.places[part.place];
      const std::size_t begin = part.numbers.begin - place.numbers.begin;
      for (std::size_t k = 0; k < states_; ++k) {
        const HeldTensor state(tensors, moment_name(place.name, k), place);
        arrays_.assign_state(part, k, state.values().subspan(begin, part.numbers.size()));
      }
    }
  }

 private:
  struct LayerViews {
    /// Where whole tensors are held.
    std::vector<typename Math::ParameterView> parameters;
    std::vector<Numbers> gradients;
    /// Where only shards are held: what is gathered of the layer that it is tied to, and of the
    /// layer itself.
    std::vector<CopiedRange> shared;
  };
  const LayerViews& of(std::int32_t layer) const {
    return views_[static_cast<std::size_t>(layer - layers_.begin)];
  }

  void initialize(const TrainingJob& job) {
    std::map<std::int32_t, std::size_t> done;  // initialized parameters of each layer
    std::vector<float> values;
    for (const TensorPlace& place : layout_.places) {
      const nn::ParameterSpec& spec =
          job.layer(place.layer, layout_.rank).own_parameters()[done[place.layer]++];
      values.resize(place.numbers.size());
      nn::initialize(spec, place.name, job.settings.seed, values);
      arrays_.assign(place, values);
    }
  }

  void sum_parts(Math& math, const TensorPlace& place) {
    const Numbers gradients = arrays_.gradients(place.numbers);
    if (place.is_summed_over_ranks) math.sum(*own_.layers.tensor.group, gradients);
  }

  ElementRange own_part(const CopiedRange& all) const {
    const nn::GroupRank& copies = own_.copies(all.is_of_experts);
    return part_of_rank(all.numbers, copies.rank, copies.ranks);
  }
  Numbers reduced_part(const CopiedRange& all) { return arrays_.gradients(own_part(all)); }
  void scatter_range(Math& math, const CopiedRange& all) {
    const nn::GroupRank& copies = own_.copies(all.is_of_experts);
    if (copies.ranks > 1) {
      math.scatter(*copies.group, arrays_.gradients(all.numbers), reduced_part(all));
    }
  }
  void gather_range(Math& math, const CopiedRange& all) {
    const nn::GroupRank& copies = own_.copies(all.is_of_experts);
    if (copies.ranks > 1) {
      math.gather(*copies.group, reduced_part(all), arrays_.gradients(all.numbers));
    }
  }

  void gather(Math& math, std::int32_t layer, OfLayer<typename Math::ParameterView>& all) {
    for (const CopiedRange& whole : of(layer).shared) {
      all.gathered_.push_back(math.make_whole_parameters(whole.numbers.size()));
      gather_shards(math, whole.is_of_experts, arrays_.parameters(whole.numbers),
                    all.gathered_.back());
      add_views(whole.numbers, all);
    }
    all.views_ = all.own_;
  }
  /// No other rank may have the same experts.
  void gather_shards(Math& math, bool of_experts, const typename Math::ParameterView& own,
                     typename Math::Whole& all) {
    const nn::GroupRank& shards = own_.shards(of_experts);
    if (shards.ranks > 1) return math.gather_whole(*shards.group, own, all);
    math.copy_whole(own, all);
  }
  void add_shard(Math& math, bool of_experts, Numbers all, Numbers sum) {
    const nn::GroupRank& shards = own_.shards(of_experts);
    if (shards.ranks > 1) return math.add_shard(*shards.group, all, sum);
    math.add(all, sum);
  }

  /// Adds views of the tensors in a range, which is the last that was gathered.
  template <class View>
  void add_views(ElementRange whole, OfLayer<View>& all) {
    const Numbers numbers = Math::numbers_in(all.gathered_.back());
    for (const TensorPlace& place : layout_.places) {
      if (intersection(place.numbers, whole).size() == 0) continue;
      all.own_.push_back(Math::part(
          numbers, {place.numbers.begin - whole.begin, place.numbers.end - whole.begin}));
    }
  }

  /// Makes the layers' views: a layer uses the parameters of the layer that it is tied to, followed
  /// by its own.
  void show(const TrainingJob& job) {
    std::map<std::int32_t, LayerViews> held;  // by the layer that owns them
    for (const TensorPlace& place : layout_.places) {
      LayerViews& views = held[place.layer];
      if (layout_.holds_shards) {
        views.shared = layout_.by_copies_of_owner(place.layer);
        continue;
      }
      views.parameters.push_back(arrays_.parameters(place.numbers));
      views.gradients.push_back(arrays_.gradients(place.numbers));
    }
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (std::int32_t layer = layers_.begin; layer < layers_.end; ++layer) {
      LayerViews& views = views_.emplace_back();
      if (const auto owner = job.layer(layer).tied_to) views = held[*owner];
      const LayerViews& own = held[layer];
      append(views.parameters, own.parameters);
      append(views.gradients, own.gradients);
      append(views.shared, own.shared);
    }
  }

  LayerRange layers_;
  std::size_t states_;  // numbers of the optimizer's state for each parameter
  FormRank own_;
  StageLayout layout_;
  typename Math::Arrays arrays_;
  std::vector<LayerViews> views_;
};

}  // namespace dapple::exec
