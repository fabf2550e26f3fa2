#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/profile/layer_table.h"
#include "dapple/search/pipedream_search/pipedream_search.h"

namespace dapple::search {
namespace {

/// A set of layers, with one bit per layer.
class LayerSet {
 public:
  explicit LayerSet(std::size_t layer_count) : words_((layer_count + 63) / 64) {}

  void insert(std::size_t layer) { words_[layer / 64] |= std::uint64_t{1} << (layer % 64); }
  bool contains(std::size_t layer) const { return (words_[layer / 64] >> (layer % 64) & 1) != 0; }
  void unite(const LayerSet& other) {
    for (std::size_t word = 0; word < words_.size(); ++word) words_[word] |= other.words_[word];
  }
  std::vector<std::int32_t> members() const {
    std::vector<std::int32_t> layers;
    for (std::size_t word = 0; word < words_.size(); ++word) {
      for (std::uint64_t rest = words_[word]; rest != 0; rest &= rest - 1) {
        layers.push_back(static_cast<std::int32_t>(word * 64) + std::countr_zero(rest));
      }
    }
    return layers;
  }
  friend auto operator<=>(const LayerSet&, const LayerSet&) = default;

 private:
  std::vector<std::uint64_t> words_;
};

/// Enumerates PipeDream's own states of a model.
class AntichainStates {
 public:
  AntichainStates(const ModelProfile& profile, const PipedreamOptions& options);

  /// Returns the states, or nullopt if there are more than the limit or some layer is in none of
  /// them.
  std::optional<std::vector<PipedreamState>> run();

 private:
  std::size_t main_source() const;
  std::vector<LayerSet> next_sets(const LayerSet& set) const;
  std::optional<std::vector<LayerSet>> reachable_sets() const;
  PipedreamState state_of(const LayerSet& set) const;
  Bytes output_of(const LayerSet& set) const;

  const std::vector<Layer>& layers_;
  const PipedreamOptions& options_;
  std::int64_t samples_;
  std::vector<Duration> compute_;
  // Indexed by layer: the layer itself and all that it depends on.
  std::vector<LayerSet> up_to_;
  std::vector<std::vector<std::size_t>> consumers_;
};

AntichainStates::AntichainStates(const ModelProfile& profile, const PipedreamOptions& options)
    : layers_(profile.layers),
      options_(options),
      samples_(profile.group.samples_of_replica(options.samples)),
      compute_(layer_compute_times(profile, options)),
      consumers_(profile.layers.size()) {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    LayerSet set(layers_.size());
    set.insert(layer);
    for (const LayerIndex input : layers_[layer].inputs) {
      check(input.value >= 0 && input.position() < layer, "a layer's input does not precede it");
      set.unite(up_to_[input.position()]);
      consumers_[input.position()].push_back(layer);
    }
    up_to_.push_back(std::move(set));
  }
}

std::size_t AntichainStates::main_source() const {
  std::size_t best = 0;
  std::int64_t most = 0;
  for (std::size_t source = 0; source < layers_.size(); ++source) {
    if (!layers_[source].inputs.empty()) continue;
    const std::int64_t dependants = std::count_if(
        up_to_.begin(), up_to_.end(), [&](const LayerSet& set) { return set.contains(source); });
    if (dependants > most) {
      best = source;
      most = dependants;
    }
  }
  return best;
}

std::vector<LayerSet> AntichainStates::next_sets(const LayerSet& set) const {
  std::vector<LayerSet> result;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    if (set.contains(layer)) continue;
    const std::vector<LayerIndex>& inputs = layers_[layer].inputs;
    if (std::none_of(inputs.begin(), inputs.end(),
                     [&](LayerIndex input) { return set.contains(input.position()); })) {
      continue;
    }
    result.push_back(set);
    result.back().unite(up_to_[layer]);
  }
  return result;
}

std::optional<std::vector<LayerSet>> AntichainStates::reachable_sets() const {
  std::vector<LayerSet> queue{up_to_[main_source()]};
  std::set<LayerSet> known{queue.front()};
  for (std::size_t done = 0; done < queue.size(); ++done) {
    for (LayerSet& next : next_sets(queue[done])) {
      if (!known.insert(next).second) continue;
      if (std::cmp_greater(known.size(), options_.max_states)) return std::nullopt;
      queue.push_back(std::move(next));
    }
  }
  return queue;
}

Bytes AntichainStates::output_of(const LayerSet& set) const {
  LayerSet sending(layers_.size());
  const std::vector<std::int32_t> members = set.members();
  for (const std::int32_t member : members) {
    const auto last = static_cast<std::size_t>(member);
    const std::vector<std::size_t>& behind = consumers_[last];
    const bool maximal = std::none_of(behind.begin(), behind.end(),
                                      [&](std::size_t layer) { return set.contains(layer); });
    if (!maximal) continue;
    sending.insert(last);
    for (const std::int32_t before : up_to_[last].members()) {
      const std::vector<std::size_t>& uses = consumers_[static_cast<std::size_t>(before)];
      if (before != member && std::any_of(uses.begin(), uses.end(), [&](std::size_t layer) {
            return !up_to_[last].contains(layer);
          })) {
        sending.insert(static_cast<std::size_t>(before));
      }
    }
  }
  Bytes total;
  for (const std::int32_t layer : sending.members()) {
    total += output_size(layers_[static_cast<std::size_t>(layer)], samples_);
  }
  return total;
}

PipedreamState AntichainStates::state_of(const LayerSet& set) const {
  PipedreamState state;
  state.layers = set.members();
  state.output = output_of(set);
  for (const std::int32_t layer : state.layers) {
    state.compute += compute_[static_cast<std::size_t>(layer)];
    state.parameters += layers_[static_cast<std::size_t>(layer)].parameters;
  }
  return state;
}

std::optional<std::vector<PipedreamState>> AntichainStates::run() {
  const std::optional<std::vector<LayerSet>> sets = reachable_sets();
  if (!sets) return std::nullopt;
  std::vector<PipedreamState> states;
  for (const LayerSet& set : *sets) states.push_back(state_of(set));
  std::sort(states.begin(), states.end(), [](const PipedreamState& a, const PipedreamState& b) {
    if (a.layers.size() != b.layers.size()) return a.layers.size() < b.layers.size();
    return a.layers < b.layers;
  });
  if (states.back().layers.size() < layers_.size()) return std::nullopt;
  return states;
}

PipedreamStates prefix_states(const ModelProfile& profile, const PipedreamOptions& options) {
  const auto layer_count = static_cast<std::int32_t>(profile.layers.size());
  const std::int32_t count = std::min(layer_count, options.max_states);
  const LayerTable table(profile, options.samples, options.times);
  PipedreamStates result;
  result.kind =
      count < layer_count ? PipedreamStateKind::MergedPrefixes : PipedreamStateKind::Prefixes;
  PipedreamState state;
  for (std::int32_t number = 1; number <= count; ++number) {
    const auto end = static_cast<std::int32_t>(std::int64_t{number} * layer_count / count);
    for (auto layer = static_cast<std::int32_t>(state.layers.size()); layer < end; ++layer) {
      state.layers.push_back(layer);
      state.parameters += profile.layers[static_cast<std::size_t>(layer)].parameters;
    }
    state.compute = table.least_forward({0, end}) + table.least_backward({0, end});
    state.output = table.boundary(end);
    result.states.push_back(state);
  }
  return result;
}

}  // namespace

std::int64_t profiled_batch(const ModelProfile& profile) {
  check(!profile.layers.empty(), "a profile without layers has no batch size");
  std::int64_t largest = 0;
  for (const Layer& layer : profile.layers) {
    largest = std::max(largest, layer.measurements.back().batch_size);
  }
  return largest;
}

std::vector<Duration> layer_compute_times(const ModelProfile& profile,
                                          const PipedreamOptions& options) {
  const LayerTable table(profile, options.samples, options.times);
  std::vector<Duration> times;
  for (std::int32_t l = 0; l < static_cast<std::int32_t>(profile.layers.size()); ++l) {
    const LayerRange alone{l, l + 1};
    times.push_back(table.least_forward(alone) + table.least_backward(alone));
  }
  return times;
}

PipedreamStates pipedream_states(const ModelProfile& profile, const PipedreamOptions& options) {
  check(!profile.layers.empty() && options.samples >= 1 && options.max_states >= 1,
        "states of nothing");
  // A connected graph with a single source has at least as many states as layers. So if there are
  // more layers than the limit, the sets are not built at all.
  if (std::cmp_less_equal(profile.layers.size(), options.max_states)) {
    std::optional<std::vector<PipedreamState>> states = AntichainStates(profile, options).run();
    if (states) return {std::move(*states), PipedreamStateKind::Antichains};
  }
  return prefix_states(profile, options);
}

}  // namespace dapple::search
