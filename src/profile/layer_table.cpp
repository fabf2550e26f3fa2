#include <algorithm>
#include <bit>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/profile/layer_table.h"
#include "dapple/profile/model_profile.h"

namespace dapple {
namespace {

/// Returns for each layer the last layer that consumes its output, or the layer itself if none
/// does.
std::vector<std::size_t> last_consumers(const std::vector<Layer>& layers) {
  std::vector<std::size_t> last(layers.size());
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    last[layer] = layer;
    for (const LayerIndex input : layers[layer].inputs) {
      check(input.value >= 0 && input.position() < layer, "a layer's input does not precede it");
      last[input.position()] = layer;
    }
  }
  return last;
}

/// Returns the size of the boundary at each cut. The output of layer l crosses the cuts from l + 1
/// to its last consumer, so its size is added at the first of them and subtracted after the last.
std::vector<Bytes> boundaries(const std::vector<Layer>& layers, const std::vector<Bytes>& outputs) {
  std::vector<Bytes> change(layers.size() + 2);
  const std::vector<std::size_t> last = last_consumers(layers);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    change[layer + 1] += outputs[layer];
    change[last[layer] + 1] -= outputs[layer];
  }
  std::vector<Bytes> sizes;
  Bytes alive;
  for (std::size_t cut = 0; cut <= layers.size(); ++cut) {
    alive += change[cut];
    sizes.push_back(alive);
  }
  return sizes;
}

/// Returns at each cut the size of what the next layer consumes of the last layer before the cut.
std::vector<Bytes> sizes_to_next_layer(const std::vector<Layer>& layers,
                                       const std::vector<Bytes>& outputs) {
  std::vector<Bytes> sizes(layers.size() + 1);
  for (std::size_t l = 1; l < layers.size(); ++l) {
    const std::vector<LayerIndex>& inputs = layers[l].inputs;
    const bool consumes = !inputs.empty() && inputs.back().position() + 1 == l;
    if (consumes) sizes[l] = outputs[l - 1];
  }
  return sizes;
}

struct LayerFigures {
  Duration forward;
  Duration backward;
  Duration input_gradient;
  Duration forward_collectives;
  Duration backward_collectives;
  LayerNicUse nic_use;
  Bytes output;
  Bytes stash;
  Bytes workspace;
};

/// Lengthens the figures where gathering sharded state takes longer than they do.
void wait_for_state(const ShardedLayer& sharded, LayerFigures& figures) {
  const auto raise = [](Duration& figure, Duration least) {
    const Duration more = std::max(figure, least) - figure;
    figure += more;
    return more;
  };
  figures.forward_collectives += raise(figures.forward, sharded.gather);
  raise(figures.input_gradient, sharded.gather);
  figures.backward_collectives += raise(figures.backward, sharded.gather + sharded.scatter);
}

LayerFigures figures_of(const ModelProfile& profile, std::size_t l, std::int64_t samples_of_group,
                        TimeSource source) {
  const std::int64_t samples = profile.group.samples_of_replica(samples_of_group);
  const Layer& layer = profile.layers[l];
  const GroupShape& group = group_on(profile, source.measured);
  const CoreTimes core = core_times(layer, samples, profile.batch_scaling, source);
  const Duration forward = collectives_time(layer.forward_collectives, samples, group, core);
  const Duration backward = collectives_time(layer.backward_collectives, samples, group, core);
  const ShardedLayer& sharded = sharded_on(layer, source.measured);
  LayerFigures figures{
      .forward = forward + forward_time(layer, samples, profile.batch_scaling, source),
      .backward = backward + backward_time(layer, samples, profile.batch_scaling, source),
      .input_gradient =
          backward + input_gradient_time(profile, index_at<LayerIndex>(l), samples, source),
      .forward_collectives = forward,
      .backward_collectives = backward,
      .nic_use = {.forward = dapple::nic_use(layer.forward_collectives, samples, group, core),
                  .backward = dapple::nic_use(layer.backward_collectives, samples, group, core),
                  .gather = sharded.gather_by_nic,
                  .scatter = sharded.scatter_by_nic},
      .output = output_size(layer, samples),
      .stash = stash_size(layer, samples),
      .workspace = workspace_size(layer, samples) + layer.sharded.working_set};
  wait_for_state(sharded, figures);
  return figures;
}

/// Returns the least of each time over the sources.
LayerFigures least_figures_of(const ModelProfile& profile, std::size_t l, std::int64_t samples,
                              const std::vector<TimeSource>& sources) {
  LayerFigures least = figures_of(profile, l, samples, sources.front());
  for (std::size_t i = 1; i < sources.size(); ++i) {
    const LayerFigures other = figures_of(profile, l, samples, sources[i]);
    for (Duration LayerFigures::*const time :
         {&LayerFigures::forward, &LayerFigures::backward, &LayerFigures::input_gradient,
          &LayerFigures::forward_collectives, &LayerFigures::backward_collectives}) {
      least.*time = std::min(least.*time, other.*time);
    }
  }
  return least;
}

/// Whether a layer equals the one before it in everything that figures_of() depends on, as most
/// layers of a deep model do, and so has the same figures. Ties are not looked up: where there are
/// any, the answer is false if either layer has no parameters of its own.
bool has_figures_of_previous(const ModelProfile& profile, std::size_t l) {
  if (l == 0) return false;
  const Layer& layer = profile.layers[l];
  const Layer& previous = profile.layers[l - 1];
  const bool may_be_tied =
      !profile.ties.empty() && (layer.parameters.count == 0 || previous.parameters.count == 0);
  return !may_be_tied && (layer.parameters.count == 0) == (previous.parameters.count == 0) &&
         layer.fixed_overhead == previous.fixed_overhead &&
         layer.measurements == previous.measurements && layer.other_times == previous.other_times &&
         layer.forward_collectives == previous.forward_collectives &&
         layer.backward_collectives == previous.backward_collectives &&
         layer.sharded == previous.sharded && layer.other_sharded == previous.other_sharded;
}

/// Returns at [k][layer] the largest workspace of the 2^k layers from `layer` on; empty if all
/// workspaces are zero.
std::vector<std::vector<Bytes>> largest_of_spans(std::vector<Bytes> workspaces) {
  if (std::all_of(workspaces.begin(), workspaces.end(), [](Bytes w) { return w.count == 0; })) {
    return {};
  }
  std::vector<std::vector<Bytes>> levels{std::move(workspaces)};
  for (std::size_t span = 1; 2 * span <= levels.front().size(); span *= 2) {
    const std::vector<Bytes>& half = levels.back();
    std::vector<Bytes> whole;
    for (std::size_t layer = 0; layer + span < half.size(); ++layer) {
      whole.push_back(std::max(half[layer], half[layer + span]));
    }
    levels.push_back(std::move(whole));
  }
  return levels;
}

template <class Quantity>
void add_to(std::vector<Quantity>& prefix_sums, Quantity next) {
  prefix_sums.push_back(prefix_sums.back() + next);
}

}  // namespace

LayerTable::LayerTable(const ModelProfile& profile, std::int64_t samples,
                       const std::vector<TimeSource>& sources)
    : sums_{.forward = std::vector<Duration>(1),
            .backward = std::vector<Duration>(1),
            .input_gradient = std::vector<Duration>(1),
            .stash = std::vector<Bytes>(1),
            .forward_collectives = {},
            .backward_collectives = {},
            .nic_use = {}} {
  const bool has_collectives = profile.group != GroupShape{};
  const bool passes_servers =
      profile.group.passes_servers() ||
      std::any_of(profile.other_groups.begin(), profile.other_groups.end(),
                  [](const GroupShape& group) { return group.passes_servers(); });
  if (passes_servers) sums_.nic_use.resize(1);
  if (has_collectives) {
    sums_.forward_collectives.resize(1);
    sums_.backward_collectives.resize(1);
  }
  std::vector<Bytes> outputs;
  std::vector<Bytes> workspaces;
  LayerFigures figures;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    if (!has_figures_of_previous(profile, l)) {
      figures = least_figures_of(profile, l, samples, sources);
    }
    add_to(sums_.forward, figures.forward);
    add_to(sums_.backward, figures.backward);
    add_to(sums_.input_gradient, figures.input_gradient);
    add_to(sums_.stash, figures.stash);
    if (has_collectives) {
      add_to(sums_.forward_collectives, figures.forward_collectives);
      add_to(sums_.backward_collectives, figures.backward_collectives);
    }
    if (passes_servers) add_to(sums_.nic_use, figures.nic_use);
    outputs.push_back(figures.output);
    workspaces.push_back(figures.workspace);
  }
  const bool is_direct = profile.skip_tensors == SkipTensors::Direct;
  boundary_ = is_direct ? sizes_to_next_layer(profile.layers, outputs)
                        : boundaries(profile.layers, outputs);
  workspace_ = largest_of_spans(std::move(workspaces));
  if (!profile.recomputing.empty()) add_recomputing(profile, samples, sources);
}

LayerTable::LayerTable(const LayerTable& other, LayerSelection recomputed) : LayerTable(other) {
  check(!recomputing_.empty(), "no layers recompute that others could take the place of");
  selection_ = recomputed;
  stride_ = 1;
  added_ = {};
  workspace_of_nth_.clear();
  if (selection_.kind() == LayerSelection::Kind::EveryNth) add_every_nth();
}

/// Adds the table of the same layers with all of them recomputing.
void LayerTable::add_recomputing(const ModelProfile& profile, std::int64_t samples,
                                 const std::vector<TimeSource>& sources) {
  recomputing_.emplace_back(profile.recomputing.front(), samples, sources);
  selection_ = profile.parallelism.recomputed_layers;
  const Sums& other = recomputing_.front().sums_;
  const auto add_least = [](const std::vector<Duration>& one, const std::vector<Duration>& two,
                            LayerRange layer, std::vector<Duration>& sums) {
    add_to(sums, std::min(difference(one, layer), difference(two, layer)));
  };
  preceding_.push_back(0);
  least_forward_.resize(1);
  least_backward_.resize(1);
  const auto count = static_cast<std::int32_t>(profile.layers.size());
  for (std::int32_t l = 0; l < count; ++l) {
    const auto position = static_cast<std::size_t>(l);
    if (profile.recomputing.front().layers[position].recomputes) having_parts_.push_back(l);
    preceding_.push_back(static_cast<std::int32_t>(having_parts_.size()));
    add_least(sums_.forward, other.forward, {l, l + 1}, least_forward_);
    add_least(sums_.backward, other.backward, {l, l + 1}, least_backward_);
  }
  if (selection_.kind() == LayerSelection::Kind::EveryNth) add_every_nth();
}

/// Adds what recomputing every n-th of the layers that have the parts adds to each figure.
void LayerTable::add_every_nth() {
  stride_ = static_cast<std::int32_t>(std::min(selection_.number(), std::ssize(preceding_)));
  const Sums& other = recomputing_.front().sums_;
  const auto add = [&](auto figure) {
    auto& sums = added_.*figure;
    if ((sums_.*figure).empty()) return;
    sums.resize(having_parts_.size() + 1);
    for (std::size_t i = static_cast<std::size_t>(stride_); i < sums.size(); ++i) {
      const std::int32_t last = having_parts_[i - 1];
      sums[i] = sums[i - static_cast<std::size_t>(stride_)] +
                difference(other.*figure, {last, last + 1}) -
                difference(sums_.*figure, {last, last + 1});
    }
  };
  for (auto figure : {&Sums::forward, &Sums::backward, &Sums::input_gradient,
                      &Sums::forward_collectives, &Sums::backward_collectives}) {
    add(figure);
  }
  add(&Sums::stash);
  add(&Sums::nic_use);
  find_workspaces_of_every_nth();
}

void LayerTable::find_workspaces_of_every_nth() {
  const auto stride = static_cast<std::size_t>(stride_);
  if (having_parts_.size() <= stride) return;
  const LayerTable& other = recomputing_.front();
  if (workspace_.empty() && other.workspace_.empty()) return;
  std::vector<Bytes> single;
  for (std::size_t i = 0; i + stride < having_parts_.size(); ++i) {
    const std::int32_t layer = having_parts_[i];
    single.push_back(std::max(other.largest_in_span({layer, layer + 1}),
                              largest_in_span({layer + 1, having_parts_[i + stride]})));
  }
  workspace_of_nth_.push_back(std::move(single));
  for (std::size_t half = stride; half < workspace_of_nth_.back().size(); half *= 2) {
    const std::vector<Bytes>& shorter = workspace_of_nth_.back();
    std::vector<Bytes> whole;
    for (std::size_t i = 0; i + half < shorter.size(); ++i) {
      whole.push_back(std::max(shorter[i], shorter[i + half]));
    }
    workspace_of_nth_.push_back(std::move(whole));
  }
}

std::int32_t LayerTable::end_of_first(LayerRange layers) const {
  const std::int64_t last =
      preceding_[static_cast<std::size_t>(layers.begin)] + selection_.number();
  // The layers behind the last one that has the parts are the same in both tables.
  if (std::cmp_greater(last, having_parts_.size())) return layers.end;
  return std::min(having_parts_[static_cast<std::size_t>(last - 1)] + 1, layers.end);
}

Duration LayerTable::least_forward(LayerRange layers) const {
  return difference(recomputing_.empty() ? sums_.forward : least_forward_, layers);
}

Duration LayerTable::least_backward(LayerRange layers) const {
  return difference(recomputing_.empty() ? sums_.backward : least_backward_, layers);
}

Bytes LayerTable::least_held(std::int32_t layer) const {
  const LayerRange alone{layer, layer + 1};
  const Bytes kept = difference(sums_.stash, alone) + largest_in_span(alone);
  return recomputing_.empty() ? kept : std::min(kept, recomputing_.front().least_held(layer));
}

std::size_t LayerTable::Sums::size() const {
  return forward.size() + backward.size() + input_gradient.size() + stash.size() +
         forward_collectives.size() + backward_collectives.size() +
         nic_use.size() * (sizeof(LayerNicUse) / sizeof(Duration));
}

Bytes LayerTable::kept() const {
  std::size_t numbers = sums_.size() + boundary_.size();
  for (const std::vector<Bytes>& spans : workspace_) numbers += spans.size();
  const Bytes own{static_cast<std::int64_t>(numbers * sizeof(Bytes))};
  if (recomputing_.empty()) return own;
  std::size_t more = least_forward_.size() + least_backward_.size() + added_.size();
  for (const std::vector<Bytes>& spans : workspace_of_nth_) more += spans.size();
  const std::size_t positions = preceding_.size() + having_parts_.size();
  return own +
         Bytes{static_cast<std::int64_t>(more * sizeof(Bytes) + positions * sizeof(std::int32_t))} +
         recomputing_.front().kept();
}

Duration LayerTable::forward_collectives(LayerRange layers) const {
  return sums_.forward_collectives.empty() ? Duration{} : sum(&Sums::forward_collectives, layers);
}

Duration LayerTable::backward_collectives(LayerRange layers) const {
  return sums_.backward_collectives.empty() ? Duration{} : sum(&Sums::backward_collectives, layers);
}

LayerNicUse LayerTable::nic_use(LayerRange layers) const {
  return sums_.nic_use.empty() ? LayerNicUse{} : sum(&Sums::nic_use, layers);
}

Bytes LayerTable::largest_workspace(LayerRange layers) const {
  if (recomputing_.empty()) return largest_in_span(layers);
  if (selection_.kind() == LayerSelection::Kind::EveryNth) return largest_with_every_nth(layers);
  const std::int32_t end = end_of_first(layers);
  return std::max(recomputing_.front().largest_in_span({layers.begin, end}),
                  largest_in_span({end, layers.end}));
}

Bytes LayerTable::largest_with_every_nth(LayerRange layers) const {
  const LayerRange among = counted(layers);
  if (among.size() == 0) return largest_in_span(layers);
  const auto layer_at = [&](std::int32_t position) {
    return having_parts_[static_cast<std::size_t>(position)];
  };
  const std::int32_t first = among.begin + stride_ - 1;
  const std::int32_t last = layer_at(among.end - 1);
  const Bytes outside = std::max({largest_in_span({layers.begin, layer_at(first)}),
                                  recomputing_.front().largest_in_span({last, last + 1}),
                                  largest_in_span({last + 1, layers.end})});
  const auto before_last = static_cast<std::uint32_t>(among.size() / stride_ - 1);
  if (before_last == 0 || workspace_of_nth_.empty()) return outside;
  // Two spans, which may overlap, cover these layers.
  const auto level = static_cast<std::size_t>(std::bit_width(before_last) - 1);
  const std::vector<Bytes>& spans = workspace_of_nth_[level];
  const std::size_t shift =
      static_cast<std::size_t>(stride_) * (before_last - (std::size_t{1} << level));
  return std::max({outside, spans[static_cast<std::size_t>(first)],
                   spans[static_cast<std::size_t>(first) + shift]});
}

Bytes LayerTable::largest_in_span(LayerRange layers) const {
  if (layers.size() <= 0 || workspace_.empty()) return {};
  // Two spans, which may overlap, cover the range.
  const auto size = static_cast<std::uint32_t>(layers.size());
  const auto level = static_cast<std::size_t>(std::bit_width(size) - 1);
  const std::vector<Bytes>& spans = workspace_[level];
  const auto last = static_cast<std::size_t>(layers.end) - (std::size_t{1} << level);
  return std::max(spans[static_cast<std::size_t>(layers.begin)], spans[last]);
}

}  // namespace dapple
