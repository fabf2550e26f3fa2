#include "dapple/interop/profiles/pipedream.h"

#include <fmt/format.h>

#include <utility>

#include "dapple/core/error.h"
#include "interop/graphs/layer_chain.h"
#include "interop/profiles/pipedream_graph.h"
#include "interop/profiles/profile_options.h"

namespace dapple::interop {
namespace {

constexpr ProfileNeeds kNeeds{.file = "a PipeDream graph",
                              .profile_batch = Need::Required,
                              .stash = Need::Optional,
                              .tensor_parallel = Need::Useless,
                              .time_unit = Need::Optional};

class Importer {
 public:
  Importer(const std::string& source_name, const ForeignProfileOptions& options)
      : source_name_(source_name), options_(options) {}
  ImportedProfile run(std::string_view text);

 private:
  void add_header();
  void warn_of_inputs(const std::vector<GraphNode>& inputs);
  std::vector<LayerNode> layer_nodes(const std::vector<GraphNode>& nodes) const;
  void add_layers(const std::vector<GraphNode>& nodes);

  const std::string& source_name_;
  const ForeignProfileOptions& options_;
  ImportedProfile result_;
};

void Importer::add_header() {
  result_.profile =
      profile_header(options_, model_name(source_name_), "imported from a PipeDream graph");
  result_.profile.notes.push_back(fmt::format(
      "Stash of a layer: {} x its output, as the graph has no stash sizes; a layer's input is "
      "counted as the output of the layer that makes it.",
      show_factor(options_.stash.value_or(kOne))));
  warn_of_scaling(options_, *options_.profile_batch, result_.warnings);
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

std::vector<LayerNode> Importer::layer_nodes(const std::vector<GraphNode>& nodes) const {
  const Factor stash = options_.stash.value_or(kOne);
  std::vector<LayerNode> result;
  std::vector<LineFault> faults;
  for (const GraphNode& node : nodes) {
    LayerNode& layer = result.emplace_back();
    layer.number = node.number;
    layer.description = node.description;
    layer.parameters = node.parameters;
    layer.inputs = node.inputs;
    Measurement& measurement = layer.measurement;
    measurement.batch_size = *options_.profile_batch;
    measurement.forward = node.forward;
    measurement.backward = node.backward;
    measurement.output = node.output;
    if (Wide{node.output.count} * stash.billionths > Wide{kMaxCount} * kOne.billionths) {
      faults.push_back({node.line, "expected a stash of at most 10^15 bytes, got more"});
    } else {
      measurement.stash = scale_up(node.output, stash);
    }
  }
  throw_faults(std::move(faults), source_name_);
  return result;
}

void Importer::add_layers(const std::vector<GraphNode>& nodes) {
  const std::vector<LayerNode> layers = layer_nodes(nodes);
  const LayerOrder arranged = layer_order(layers);
  const std::vector<std::int32_t>& order = arranged.nodes;
  if (order.size() < layers.size()) {
    const Cycle cycle = describe_cycle(layers, order);
    throw_faults({{nodes[cycle.first].line,
                   fmt::format("expected a graph without cycles, got {}", cycle.text)}},
                 source_name_);
  }
  result_.profile.layers = layers_in_order(layers, order);
  result_.arrangement = arranged.arrangement;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const GraphNode& node = nodes[static_cast<std::size_t>(order[i])];
    warn_of_parameters(result_.profile.layers[i], fmt::format("node{}", node.number),
                       result_.warnings);
  }
}

ImportedProfile Importer::run(std::string_view text) {
  check_options(options_, kNeeds, source_name_);
  std::vector<LineFault> faults;
  PipedreamGraph graph = parse_pipedream_graph(text, unit_of_times(options_, "ms"), faults);
  throw_faults(std::move(faults), source_name_);

  const LayerGraph layers = keep_layers(std::move(graph.nodes));
  if (layers.nodes.empty()) {
    throw_faults({{0, "expected at least one layer, got input nodes only"}}, source_name_);
  }
  add_header();
  if (text.find("\n \t") != std::string_view::npos) {
    result_.warnings.push_back(
        "unusual, and read all the same: edges indented by a blank and a tab");
  }
  warn_of_inputs(layers.inputs);
  add_layers(layers.nodes);
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
  ImportedProfile imported = Importer(source_name, options).run(text);
  add_doubts(imported);
  return imported;
}

}  // namespace dapple::interop
