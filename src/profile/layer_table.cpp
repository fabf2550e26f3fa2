#include <algorithm>
#include <bit>
#include <utility>

#include "dapple/core/error.h"
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

struct LayerFigures {
  Duration forward;
  Duration backward;
  Duration input_gradient;
  Duration forward_collectives;
  Duration backward_collectives;
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
  const Duration forward = collectives_time(layer.forward_collectives, samples, group);
  const Duration backward = collectives_time(layer.backward_collectives, samples, group);
  LayerFigures figures{
      .forward = forward + forward_time(layer, samples, profile.batch_scaling, source),
      .backward = backward + backward_time(layer, samples, profile.batch_scaling, source),
      .input_gradient =
          backward + input_gradient_time(profile, index_at<LayerIndex>(l), samples, source),
      .forward_collectives = forward,
      .backward_collectives = backward,
      .output = output_size(layer, samples),
      .stash = stash_size(layer, samples),
      .workspace = workspace_size(layer, samples) + layer.sharded.working_set};
  wait_for_state(sharded_on(layer, source.measured), figures);
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

}  // namespace

LayerTable::LayerTable(const ModelProfile& profile, std::int64_t samples,
                       const std::vector<TimeSource>& sources)
    : forward_(1), backward_(1), input_gradient_(1), stash_(1) {
  const bool has_collectives = profile.group != GroupShape{};
  if (has_collectives) {
    forward_collectives_.resize(1);
    backward_collectives_.resize(1);
  }
  std::vector<Bytes> outputs;
  std::vector<Bytes> workspaces;
  LayerFigures figures;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    if (!has_figures_of_previous(profile, l)) {
      figures = least_figures_of(profile, l, samples, sources);
    }
    forward_.push_back(forward_.back() + figures.forward);
    backward_.push_back(backward_.back() + figures.backward);
    input_gradient_.push_back(input_gradient_.back() + figures.input_gradient);
    stash_.push_back(stash_.back() + figures.stash);
    if (has_collectives) {
      forward_collectives_.push_back(forward_collectives_.back() + figures.forward_collectives);
      backward_collectives_.push_back(backward_collectives_.back() + figures.backward_collectives);
    }
    outputs.push_back(figures.output);
    workspaces.push_back(figures.workspace);
  }
  boundary_ = boundaries(profile.layers, outputs);
  workspace_ = largest_of_spans(std::move(workspaces));
  if (!profile.recomputing.empty()) add_recomputing(profile, samples, sources);
}

/// Adds the table of the same layers with all of them recomputing.
void LayerTable::add_recomputing(const ModelProfile& profile, std::int64_t samples,
                                 const std::vector<TimeSource>& sources) {
  recomputing_.emplace_back(profile.recomputing.front(), samples, sources);
  first_layers_ = profile.parallelism.recomputed_layers;
  const LayerTable& other = recomputing_.front();
  const auto add_least = [](const std::vector<Duration>& one, const std::vector<Duration>& two,
                            LayerRange layer, std::vector<Duration>& sums) {
    sums.push_back(sums.back() + std::min(difference(one, layer), difference(two, layer)));
  };
  preceding_.push_back(0);
  least_forward_.resize(1);
  least_backward_.resize(1);
  const auto count = static_cast<std::int32_t>(profile.layers.size());
  for (std::int32_t l = 0; l < count; ++l) {
    const auto position = static_cast<std::size_t>(l);
    if (profile.recomputing.front().layers[position].recomputes) having_parts_.push_back(l);
    preceding_.push_back(static_cast<std::int64_t>(having_parts_.size()));
    add_least(forward_, other.forward_, {l, l + 1}, least_forward_);
    add_least(backward_, other.backward_, {l, l + 1}, least_backward_);
  }
}

std::int32_t LayerTable::end_of_first(LayerRange layers) const {
  const std::int64_t last = preceding_[static_cast<std::size_t>(layers.begin)] + first_layers_;
  // The layers behind the last one that has the parts are the same in both tables.
  if (std::cmp_greater(last, having_parts_.size())) return layers.end;
  return std::min(having_parts_[static_cast<std::size_t>(last - 1)] + 1, layers.end);
}

Duration LayerTable::least_forward(LayerRange layers) const {
  return difference(recomputing_.empty() ? forward_ : least_forward_, layers);
}

Duration LayerTable::least_backward(LayerRange layers) const {
  return difference(recomputing_.empty() ? backward_ : least_backward_, layers);
}

Bytes LayerTable::kept() const {
  std::size_t numbers = forward_.size() + backward_.size() + input_gradient_.size() +
                        stash_.size() + boundary_.size() + forward_collectives_.size() +
                        backward_collectives_.size();
  for (const std::vector<Bytes>& spans : workspace_) numbers += spans.size();
  const Bytes own{static_cast<std::int64_t>(numbers * sizeof(Bytes))};
  if (recomputing_.empty()) return own;
  const std::size_t more = preceding_.size() + least_forward_.size() + least_backward_.size();
  return own +
         Bytes{static_cast<std::int64_t>(more * sizeof(Bytes) +
                                         having_parts_.size() * sizeof(std::int32_t))} +
         recomputing_.front().kept();
}

Duration LayerTable::forward_collectives(LayerRange layers) const {
  return forward_collectives_.empty() ? Duration{} : sum(&LayerTable::forward_collectives_, layers);
}

Duration LayerTable::backward_collectives(LayerRange layers) const {
  return backward_collectives_.empty() ? Duration{}
                                       : sum(&LayerTable::backward_collectives_, layers);
}

Bytes LayerTable::largest_workspace(LayerRange layers) const {
  if (recomputing_.empty()) return largest_in_span(layers);
  const std::int32_t end = end_of_first(layers);
  return std::max(recomputing_.front().largest_in_span({layers.begin, end}),
                  largest_in_span({end, layers.end}));
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
