#include "dapple/interop/pipedream.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "dapple/core/error.h"
#include "narrow_order.h"
#include "pipedream_graph.h"

namespace dapple {
namespace {

struct KnownOptimizer {
  std::string_view name;
  std::int64_t state_bytes_per_parameter_byte;
};
// Momentum and RMSProp keep one figure per parameter, Adam two.
constexpr std::array<KnownOptimizer, 4> kOptimizers{
    {{"sgd", 0}, {"momentum", 1}, {"rmsprop", 1}, {"adam", 2}}};

// As in our own profiles.
constexpr std::int64_t kMostSamples = 2'147'483'647;

constexpr Bytes kSuspiciousParameters{10'000'000'000};

const KnownOptimizer* find_optimizer(const std::string& name) {
  const auto* found = std::find_if(kOptimizers.begin(), kOptimizers.end(),
                                   [&](const KnownOptimizer& known) { return known.name == name; });
  return found == kOptimizers.end() ? nullptr : found;
}

void check_count(const char* option, const std::optional<std::int64_t>& count, const char* what,
                 std::vector<Violation>& violations) {
  if (!count) {
    violations.push_back({option, fmt::format("expected {}, which a PipeDream graph does not say, "
                                              "got nothing",
                                              what)});
  } else if (*count < 1 || *count > kMostSamples) {
    violations.push_back(
        {option, fmt::format("expected {}, from 1 to {}, got {}", what, kMostSamples, *count)});
  }
}

void check_options(const ForeignProfileOptions& options, const std::string& source_name) {
  std::vector<Violation> violations;
  check_count("--profile-batch", options.profile_batch, "the batch size that was profiled",
              violations);
  constexpr const char* kNames = "sgd, momentum, rmsprop or adam";
  if (!options.optimizer) {
    violations.push_back(
        {"--optimizer",
         fmt::format("expected {}, which a PipeDream graph does not say, got nothing", kNames)});
  } else if (find_optimizer(*options.optimizer) == nullptr) {
    violations.push_back(
        {"--optimizer", fmt::format("expected {}, got '{}'", kNames, shown(*options.optimizer))});
  }
  check_count("--global-batch", options.global_batch, "the global batch size", violations);
  if (options.stash && options.stash->billionths < 0) {
    violations.push_back({"--stash", "expected a factor of 0 or more, got a negative one"});
  }
  if (!violations.empty()) throw Error(ErrorKind::Usage, source_name, std::move(violations));
}

/// "Input", "Input0", "Input(...)", but no "InputProjection".
bool is_named_input(std::string_view description) {
  constexpr std::string_view kName = "Input";
  if (!begins_with(description, kName)) return false;
  description.remove_prefix(kName.size());
  const std::size_t end = description.find_first_not_of("0123456789");
  return end == std::string_view::npos || description[end] == '(' || description[end] == ' ';
}

/// What remains of a graph without the nodes that are no layers.
struct LayerGraph {
  std::vector<GraphNode> nodes;  // inputs are positions among them
  std::vector<GraphNode> inputs;
};

LayerGraph keep_layers(std::vector<GraphNode> nodes) {
  std::vector<std::size_t> consumers(nodes.size());
  for (const GraphNode& node : nodes) {
    for (const std::int32_t input : node.inputs) ++consumers[static_cast<std::size_t>(input)];
  }
  std::vector<bool> left_out(nodes.size());
  std::vector<std::size_t> sinks;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    // What has parameters or inputs of its own is a layer, whatever its name.
    left_out[i] = is_named_input(nodes[i].description) && nodes[i].inputs.empty() &&
                  nodes[i].parameters == Bytes{};
    if (consumers[i] == 0) sinks.push_back(i);
  }
  while (!sinks.empty()) {
    const std::size_t sink = sinks.back();
    sinks.pop_back();
    const GraphNode& node = nodes[sink];
    const bool works = node.forward + node.backward > Duration{} || node.parameters > Bytes{};
    if (left_out[sink] || works || !begins_with(node.description, "__getitem__")) continue;
    left_out[sink] = true;
    for (const std::int32_t input : node.inputs) {
      const auto position = static_cast<std::size_t>(input);
      if (--consumers[position] == 0) sinks.push_back(position);
    }
  }

  LayerGraph result;
  std::vector<std::int32_t> new_position(nodes.size(), -1);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (left_out[i]) {
      if (is_named_input(nodes[i].description)) result.inputs.push_back(std::move(nodes[i]));
      continue;
    }
    new_position[i] = static_cast<std::int32_t>(result.nodes.size());
    result.nodes.push_back(std::move(nodes[i]));
  }
  for (GraphNode& node : result.nodes) {
    std::vector<std::int32_t> kept;
    for (const std::int32_t input : node.inputs) {
      const std::int32_t position = new_position[static_cast<std::size_t>(input)];
      if (position >= 0) kept.push_back(position);
    }
    node.inputs = std::move(kept);
  }
  return result;
}

/// A cycle among the nodes that have no place in `order`, from its lowest node on, as text.
LineFault describe_cycle(const std::vector<GraphNode>& nodes,
                         const std::vector<std::int32_t>& order) {
  std::vector<bool> ordered(nodes.size());
  for (const std::int32_t node : order) ordered[static_cast<std::size_t>(node)] = true;
  // A node without inputs may wait for a consumer behind the cycle; it is on none.
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].inputs.empty()) ordered[i] = true;
  }
  // Each node left has an input that is left too, so going back from one ends in a cycle.
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
  return {nodes[cycle.front()].line, fmt::format("expected a graph without cycles, got {}", names)};
}

std::vector<std::int32_t> order_layers(const std::vector<GraphNode>& nodes,
                                       const std::string& source_name) {
  TensorGraph graph;
  for (const GraphNode& node : nodes) {
    graph.outputs.push_back(node.output);
    graph.inputs.push_back(node.inputs);
  }
  std::vector<std::int32_t> order = narrow_order(graph);
  if (order.size() < nodes.size()) throw_faults({describe_cycle(nodes, order)}, source_name);
  return order;
}

/// The operator's name without its arguments, in letters, digits and single underscores.
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

/// "layer_7" as it stands where only one node is called so and it has no arguments; else with the
/// node's number, "Conv2d.76". A stem has no point in it, so no two names are equal.
std::vector<std::string> name_layers(const std::vector<GraphNode>& nodes) {
  std::map<std::string, int> uses;
  std::vector<std::string> names;
  for (const GraphNode& node : nodes) {
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

/// "vgg16" of ".../vgg16/graph.txt", "mine" of "mine.txt".
std::string model_name(const std::string& source_name) {
  std::string path = source_name;
  const auto take_last = [&path] {
    const std::size_t slash = path.find_last_of('/');
    std::string last = slash == std::string::npos ? path : path.substr(slash + 1);
    path.resize(slash == std::string::npos ? 0 : slash);
    return last;
  };
  std::string name = take_last();
  name = name.substr(0, name.find_last_of('.'));
  if (name == "graph") {
    const std::string folder = take_last();
    if (!folder.empty() && folder != "." && folder != "..") name = folder;
  }
  for (char& c : name) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_';
    if (!keep) c = '_';
  }
  return name.empty() || name == "-" ? "model" : name;
}

std::string show_factor(Factor factor) {
  std::string text = fmt::format("{}.{:09}", factor.billionths / kOne.billionths,
                                 factor.billionths % kOne.billionths);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

class Importer {
 public:
  Importer(const std::string& source_name, const ForeignProfileOptions& options)
      : source_name_(source_name), options_(options) {}
  ImportedProfile run(std::string_view text);

 private:
  void add_header();
  void warn_of_inputs(const std::vector<GraphNode>& inputs);
  void add_layers(const std::vector<GraphNode>& nodes, const std::vector<std::int32_t>& order);

  const std::string& source_name_;
  const ForeignProfileOptions& options_;
  ImportedProfile result_;
};

void Importer::add_header() {
  ModelProfile& profile = result_.profile;
  profile.name = model_name(source_name_);
  profile.source = "imported from a PipeDream graph";
  profile.global_batch_size = options_.global_batch;
  profile.device = options_.device.value_or("");
  profile.batch_scaling = options_.batch_scaling.value_or(BatchScaling::Proportional);
  const KnownOptimizer& optimizer = *find_optimizer(*options_.optimizer);
  profile.optimizer.name = optimizer.name;
  profile.optimizer.state_bytes_per_parameter_byte = {optimizer.state_bytes_per_parameter_byte *
                                                      kOne.billionths};
  const std::string factor = show_factor(options_.stash.value_or(kOne));
  profile.notes.push_back(fmt::format(
      "Stash of a layer: {} x its output, as the graph has no stash sizes; a layer's input is "
      "counted as the output of the layer that makes it.",
      factor));
  if (!options_.batch_scaling) {
    result_.warnings.push_back(fmt::format(
        "layer times are taken to be proportional to the batch size, from one measurement at {}; "
        "--batch-scaling says otherwise",
        *options_.profile_batch));
  }
  if (!options_.stash) {
    result_.warnings.push_back(
        "each layer is taken to keep as much for its backward as it puts out, since the graph has "
        "no stash sizes; --stash says otherwise");
  }
}

void Importer::warn_of_inputs(const std::vector<GraphNode>& inputs) {
  std::string names;
  for (const GraphNode& node : inputs) {
    names += fmt::format("{}node{}", names.empty() ? "" : ", ", node.number);
    if (node.forward + node.backward == Duration{}) continue;
    result_.warnings.push_back(
        fmt::format("node{} ({}) is left out with its {} ns: reading the input is no layer's work",
                    node.number, shown(node.description), (node.forward + node.backward).ns));
  }
  if (names.empty()) return;
  result_.profile.notes.push_back(
      fmt::format("Input nodes left out: {}; what consumes them starts from no tensor.", names));
}

void Importer::add_layers(const std::vector<GraphNode>& nodes,
                          const std::vector<std::int32_t>& order) {
  const Factor stash = options_.stash.value_or(kOne);
  const std::vector<std::string> names = name_layers(nodes);
  std::vector<LayerIndex> layer_of(nodes.size());
  std::vector<LineFault> faults;
  for (const std::int32_t entry : order) {
    const auto position = static_cast<std::size_t>(entry);
    const GraphNode& node = nodes[position];
    layer_of[position] = index_at<LayerIndex>(result_.profile.layers.size());
    if (Wide{node.output.count} * stash.billionths > Wide{kMaxCount} * kOne.billionths) {
      faults.push_back({node.line, "expected a stash of at most 10^15 bytes, got more"});
      continue;
    }
    Layer layer;
    layer.name = names[position];
    layer.parameters = node.parameters;
    for (const std::int32_t input : node.inputs) {
      layer.inputs.push_back(layer_of[static_cast<std::size_t>(input)]);
    }
    std::sort(layer.inputs.begin(), layer.inputs.end());
    Measurement measurement;
    measurement.batch_size = *options_.profile_batch;
    measurement.forward = node.forward;
    measurement.backward = node.backward;
    measurement.output = node.output;
    measurement.stash = scale_up(node.output, stash);
    layer.measurements.push_back(measurement);
    if (layer.parameters > kSuspiciousParameters) {
      result_.warnings.push_back(
          fmt::format("layer {} (node{}) states {} GB of parameters; is its unit right?",
                      layer.name, node.number, layer.parameters.count / 1'000'000'000));
    }
    result_.profile.layers.push_back(std::move(layer));
  }
  throw_faults(std::move(faults), source_name_);
}

ImportedProfile Importer::run(std::string_view text) {
  check_options(options_, source_name_);
  std::vector<LineFault> faults;
  PipedreamGraph graph = parse_pipedream_graph(text, faults);
  throw_faults(std::move(faults), source_name_);

  const LayerGraph layers = keep_layers(std::move(graph.nodes));
  if (layers.nodes.empty()) {
    throw_faults({{0, "expected at least one layer, got input nodes only"}}, source_name_);
  }
  const std::vector<std::int32_t> order = order_layers(layers.nodes, source_name_);
  add_header();
  warn_of_inputs(layers.inputs);
  add_layers(layers.nodes, order);
  return std::move(result_);
}

}  // namespace

bool is_pipedream_graph(std::string_view text) {
  constexpr std::string_view kLineBlanks = " \t\r\n";
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (begins_with(text, kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::size_t begin = text.find_first_not_of(kLineBlanks);
  if (begin == std::string_view::npos) return false;
  text.remove_prefix(begin);
  return begins_as_node(text.substr(0, text.find('\n')));
}

ImportedProfile import_pipedream_graph(std::string_view text, const std::string& source_name,
                                       const ForeignProfileOptions& options) {
  return Importer(source_name, options).run(text);
}

}  // namespace dapple
