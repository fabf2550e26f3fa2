#include "interop/graphs/layer_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "dapple/interop/graphs/exact_order.h"
#include "dapple/interop/graphs/narrow_order.h"
#include "dapple/profile/down_sets.h"

namespace dapple::interop {
namespace {

/// Returns the operator's name without its arguments, made up of letters, digits and single
/// underscores, and cut off after 40 characters.
std::string stem_of(std::string_view description) {
  constexpr std::size_t kLongest = 40;
  std::string stem;
  for (const char c : description.substr(0, description.find_first_of("([{"))) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (keep) {
      stem += c;
    } else if (!stem.empty() && stem.back() != '_') {
      stem += '_';
    }
    if (stem.size() == kLongest) break;
  }
  while (!stem.empty() && stem.back() == '_') stem.pop_back();
  return stem.empty() ? "node" : stem;
}

}  // namespace

std::vector<std::string> layer_names(const std::vector<LayerNode>& nodes) {
  std::map<std::string, int> uses;
  std::vector<std::string> names;
  for (const LayerNode& node : nodes) {
    names.push_back(stem_of(node.description));
    ++uses[names.back()];
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const bool has_arguments =
        nodes[i].description.find_first_of("([{") != std::string::npos || names[i] == "node";
    if (has_arguments || uses[names[i]] > 1) names[i] += fmt::format(".{}", nodes[i].number);
  }
  return names;
}

namespace {

/// The exact order is taken if its mean cut is by this part, 1 / n, below that of the greedy one.
/// Where less is gained, plans hardly differ, and profiles stay as they were.
constexpr std::int64_t kPartToGain = 100;

/// Whether the order is the only one, as each node takes the output of the one before.
bool is_only_order(const TensorGraph& graph, const std::vector<std::int32_t>& order) {
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto& inputs = graph.inputs[static_cast<std::size_t>(order[i])];
    if (std::find(inputs.begin(), inputs.end(), order[i - 1]) == inputs.end()) return false;
  }
  return true;
}

/// Returns an order's mean cut. Requires: `work`, that of all nodes, is above zero.
Bytes mean_cut(const OrderWidth& width, Duration work) {
  return {divide_down(width.over_work, work.ns)};
}

/// Puts the nodes in the exact order if that gains enough. Requires: `greedy` has all nodes.
LayerOrder arranged(const TensorGraph& graph, std::vector<std::int32_t> greedy) {
  Duration work;
  for (const Duration of_node : graph.work) work += of_node;
  if (work == Duration{} || !are_widths_small(graph) || is_only_order(graph, greedy)) {
    return {std::move(greedy)};
  }
  const OrderWidth before = width_of(graph, greedy);
  LayerArrangement arrangement{.down_sets = std::nullopt,
                               .mean_cut = mean_cut(before, work),
                               .greedy_mean_cut = mean_cut(before, work),
                               .least_mean_cut = std::nullopt};
  const std::optional<DownSets> sets = DownSets::of(graph.inputs);
  if (!sets) return {std::move(greedy), arrangement};
  std::vector<std::int32_t> exact = exact_order(graph, *sets);
  const OrderWidth least = width_of(graph, exact);
  arrangement.down_sets = sets->size();
  arrangement.least_mean_cut = mean_cut(least, work);
  const bool gains = before.over_work - least.over_work > before.over_work / kPartToGain;
  if (!gains) return {std::move(greedy), arrangement};
  arrangement.mean_cut = *arrangement.least_mean_cut;
  return {std::move(exact), arrangement};
}

}  // namespace

LayerOrder layer_order(const std::vector<LayerNode>& nodes) {
  TensorGraph graph;
  for (const LayerNode& node : nodes) {
    graph.outputs.push_back(node.measurement.output);
    graph.inputs.push_back(node.inputs);
    graph.work.push_back(node.measurement.forward + node.measurement.backward);
  }
  std::vector<std::int32_t> greedy = narrow_order(graph);
  if (greedy.size() < nodes.size()) return {std::move(greedy)};
  return arranged(graph, std::move(greedy));
}

Cycle describe_cycle(const std::vector<LayerNode>& nodes, const std::vector<std::int32_t>& order) {
  std::vector<bool> ordered(nodes.size());
  for (const std::int32_t node : order) ordered[static_cast<std::size_t>(node)] = true;
  // A node without inputs may be missing because its consumer is behind a cycle, but is on none.
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].inputs.empty()) ordered[i] = true;
  }
  // Each remaining node has a remaining input, so following inputs backwards ends in a cycle.
  std::vector<std::int64_t> step(nodes.size(), -1);
  std::vector<std::size_t> path;
  std::size_t node =
      static_cast<std::size_t>(std::find(ordered.begin(), ordered.end(), false) - ordered.begin());
  while (step[node] < 0) {
    step[node] = static_cast<std::int64_t>(path.size());
    path.push_back(node);
    const auto& inputs = nodes[node].inputs;
    node = static_cast<std::size_t>(*std::find_if(inputs.begin(), inputs.end(), [&](auto input) {
      return !ordered[static_cast<std::size_t>(input)];
    }));
  }
  std::vector<std::size_t> cycle(path.begin() + step[node], path.end());
  std::reverse(cycle.begin(), cycle.end());  // from producer to consumer
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());

  constexpr std::size_t kMostNamed = 12;
  std::string names;
  for (std::size_t i = 0; i < std::min(cycle.size(), kMostNamed); ++i) {
    names += fmt::format("node{} -> ", nodes[cycle[i]].number);
  }
  if (cycle.size() > kMostNamed) names += "... -> ";
  names += fmt::format("node{}", nodes[cycle.front()].number);
  return {.text = std::move(names), .first = cycle.front()};
}

std::vector<Layer> layers_in_order(const std::vector<LayerNode>& nodes,
                                   const std::vector<std::int32_t>& order) {
  const std::vector<std::string> names = layer_names(nodes);
  std::vector<LayerIndex> layer_of(nodes.size());
  std::vector<Layer> layers;
  for (const std::int32_t entry : order) {
    const auto position = static_cast<std::size_t>(entry);
    const LayerNode& node = nodes[position];
    layer_of[position] = index_at<LayerIndex>(layers.size());
    Layer layer;
    layer.name = names[position];
    layer.parameters = node.parameters;
    for (const std::int32_t input : node.inputs) {
      layer.inputs.push_back(layer_of[static_cast<std::size_t>(input)]);
    }
    std::sort(layer.inputs.begin(), layer.inputs.end());
    layer.measurements.push_back(node.measurement);
    layer.variants = node.variants;
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace dapple::interop
