#include "interop/profiles/pipedream_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "dapple/core/decimal.h"
#include "dapple/profile/limits.h"

namespace dapple::interop {
namespace {

constexpr std::string_view kSeparator = " -- ";

/// Returns 12 for "node12", or nothing for any other text. Numbers have at most nine digits.
std::optional<std::int64_t> node_number(std::string_view id) {
  constexpr std::string_view kPrefix = "node";
  if (!begins_with(id, kPrefix)) return std::nullopt;
  return parse_count(id.substr(kPrefix.size()));
}

struct Edge {
  std::int64_t line = 0;
  std::int64_t from = 0;
  std::int64_t to = 0;
};

/// The unit of a figure.
struct Unit {
  std::string_view name;
  // The number of nanoseconds or bytes in one unit.
  std::int64_t multiple;
  // The largest allowed value, kMaxCount in this unit, in words.
  std::string most;
};

/// A figure of a node line.
struct Field {
  std::string_view key;
  bool is_time;
};
constexpr std::array<Field, 4> kFields{{{"forward_compute_time", true},
                                        {"backward_compute_time", true},
                                        {"activation_size", false},
                                        {"parameter_size", false}}};
constexpr std::size_t kActivationField = 2;

Unit unit_of(const Field& field, const TimeUnit& times) {
  if (!field.is_time) return {"bytes", 1, "10^15 bytes"};
  int zeros = 0;
  for (std::int64_t most = kMaxCount / times.nanoseconds; most > 1; most /= 10) ++zeros;
  return {times.name, times.nanoseconds, fmt::format("10^{} {}", zeros, times.name)};
}

class GraphParser {
 public:
  GraphParser(const TimeUnit& times, std::vector<LineFault>& faults)
      : times_(times), faults_(faults) {}
  PipedreamGraph run(std::string_view text);

 private:
  void fail(std::string message) { faults_.push_back({line_, std::move(message)}); }
  void parse_line(std::string_view line);
  void parse_edge(std::string_view line);
  void parse_node(std::string_view line);
  bool parse_figures(std::string_view text, GraphNode& node);
  std::optional<std::int64_t> parse_figure(const Field& field, std::string_view value);
  std::optional<std::int64_t> parse_sizes(const Field& field, std::string_view list);
  void remove_duplicates();
  void connect();

  const TimeUnit times_;
  std::vector<LineFault>& faults_;
  std::int64_t line_ = 0;
  std::vector<Edge> edges_;
  // The numbers of the nodes whose lines have faults; sorted by connect().
  std::vector<std::int64_t> broken_nodes_;
  PipedreamGraph graph_;
};

std::optional<std::int64_t> GraphParser::parse_figure(const Field& field, std::string_view value) {
  const Unit unit = unit_of(field, times_);
  const RoundedCount rounded = scaled_up(value, unit.multiple);
  switch (rounded.fault) {
    case DecimalFault::None:
      return rounded.count;
    case DecimalFault::TooLarge:
      fail(fmt::format("{}: expected at most {}, got '{}'", field.key, unit.most, shown(value)));
      return std::nullopt;
    case DecimalFault::Negative:
    case DecimalFault::NotANumber:
      break;
  }
  fail(fmt::format("{}: expected a number of {}, 0 or more, got '{}'", field.key, unit.name,
                   shown(value)));
  return std::nullopt;
}

std::optional<std::int64_t> GraphParser::parse_sizes(const Field& field, std::string_view list) {
  if (list.back() != ']') {
    fail(fmt::format("{}: expected a list that ends in ], got '{}'", field.key, shown(list)));
    return std::nullopt;
  }
  std::int64_t sum = 0;
  for (const std::string_view item : split(list.substr(1, list.size() - 2), ";")) {
    const std::optional<std::int64_t> size = parse_figure(field, trim(item));
    if (!size) return std::nullopt;
    sum += *size;
    if (sum > kMaxCount) {
      fail(fmt::format("{}: expected at most {}, got more in '{}'", field.key,
                       unit_of(field, times_).most, shown(list)));
      return std::nullopt;
    }
  }
  return sum;
}

bool GraphParser::parse_figures(std::string_view text, GraphNode& node) {
  std::array<std::optional<std::int64_t>, kFields.size()> figures;
  std::array<bool, kFields.size()> seen{};
  const std::size_t faults_before = faults_.size();
  for (const std::string_view part : split(text, ",")) {
    const std::string_view assignment = trim(part);
    const std::size_t equals = assignment.find('=');
    const std::string_view key = trim(assignment.substr(0, equals));
    const auto* field = std::find_if(kFields.begin(), kFields.end(),
                                     [&](const Field& known) { return known.key == key; });
    if (field == kFields.end() || equals == std::string_view::npos) {
      fail(
          fmt::format("expected forward_compute_time=, backward_compute_time=, activation_size= "
                      "or parameter_size=, got '{}'",
                      shown(assignment)));
      continue;
    }
    const auto position = static_cast<std::size_t>(field - kFields.begin());
    if (seen[position]) fail(fmt::format("expected {} once, got it twice", key));
    seen[position] = true;
    const std::string_view value = trim(assignment.substr(equals + 1));
    const bool is_list = position == kActivationField && !value.empty() && value.front() == '[';
    figures[position] = is_list ? parse_sizes(*field, value) : parse_figure(*field, value);
  }
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    if (!seen[i]) fail(fmt::format("expected {}=, got none", kFields[i].key));
  }
  if (faults_.size() > faults_before) return false;
  node.forward = {*figures[0]};
  node.backward = {*figures[1]};
  node.output = {*figures[2]};
  node.parameters = {*figures[3]};
  return true;
}

void GraphParser::parse_node(std::string_view line) {
  std::vector<std::string_view> parts = split(line, kSeparator);
  GraphNode node;
  node.line = line_;
  const std::optional<std::int64_t> number = node_number(trim(parts.front()));
  if (!number) {
    fail(
        fmt::format("expected a node line that begins with node<number>, or an edge that begins "
                    "with white space, got '{}'",
                    shown(line)));
    return;
  }
  node.number = *number;
  constexpr std::string_view kStage = "stage_id=";
  if (parts.size() > 3 && begins_with(trim(parts.back()), kStage)) {
    node.stage = parse_count(trim(trim(parts.back()).substr(kStage.size())));
    parts.pop_back();
  }
  if (parts.size() < 3) {
    fail(fmt::format("expected '<node> -- <description> -- <figures>', got '{}'", shown(line)));
    broken_nodes_.push_back(node.number);
    return;
  }
  const char* begin = parts[1].data();
  const char* end = parts[parts.size() - 2].data() + parts[parts.size() - 2].size();
  node.description = trim(std::string_view(begin, static_cast<std::size_t>(end - begin)));
  if (parse_figures(parts.back(), node)) {
    graph_.nodes.push_back(std::move(node));
  } else {
    broken_nodes_.push_back(node.number);
  }
}

void GraphParser::parse_edge(std::string_view line) {
  const std::vector<std::string_view> ends = split(trim(line), kSeparator);
  std::optional<std::int64_t> from;
  std::optional<std::int64_t> to;
  if (ends.size() == 2) {
    from = node_number(trim(ends[0]));
    to = node_number(trim(ends[1]));
  }
  if (!from || !to) {
    fail(fmt::format("expected an edge 'node<number> -- node<number>', got '{}'",
                     shown(trim(line))));
    return;
  }
  edges_.push_back({line_, *from, *to});
}

void GraphParser::parse_line(std::string_view line) {
  if (trim(line).empty()) return;
  const bool is_edge = kBlanks.find(line.front()) != std::string_view::npos;
  if (is_edge) {
    parse_edge(line);
  } else {
    parse_node(trim(line));
  }
}

void GraphParser::remove_duplicates() {
  std::vector<GraphNode>& nodes = graph_.nodes;
  std::sort(nodes.begin(), nodes.end(), [](const GraphNode& a, const GraphNode& b) {
    return std::pair(a.number, a.line) < std::pair(b.number, b.line);
  });
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    if (nodes[i].number != nodes[i - 1].number) continue;
    line_ = nodes[i].line;
    fail(fmt::format("expected every node once, got node{} again", nodes[i].number));
  }
  const auto same = [](const GraphNode& a, const GraphNode& b) { return a.number == b.number; };
  nodes.erase(std::unique(nodes.begin(), nodes.end(), same), nodes.end());
}

/// Turns the edges into inputs of nodes. Repeated edges count once.
void GraphParser::connect() {
  std::vector<GraphNode>& nodes = graph_.nodes;
  std::sort(broken_nodes_.begin(), broken_nodes_.end());
  const auto position_of = [&](std::int64_t number) -> std::optional<std::int32_t> {
    const auto found = std::lower_bound(
        nodes.begin(), nodes.end(), number,
        [](const GraphNode& node, std::int64_t wanted) { return node.number < wanted; });
    if (found == nodes.end() || found->number != number) {
      // A node whose own line has a fault is not reported again for each of its edges.
      if (!std::binary_search(broken_nodes_.begin(), broken_nodes_.end(), number)) {
        fail(
            fmt::format("expected an edge between nodes of this file, got node{}, which has no "
                        "line of its own",
                        number));
      }
      return std::nullopt;
    }
    return static_cast<std::int32_t>(found - nodes.begin());
  };
  for (const Edge& edge : edges_) {
    line_ = edge.line;
    const std::optional<std::int32_t> from = position_of(edge.from);
    const std::optional<std::int32_t> to = position_of(edge.to);
    if (from && to) nodes[static_cast<std::size_t>(*to)].inputs.push_back(*from);
  }
  for (GraphNode& node : nodes) {
    std::sort(node.inputs.begin(), node.inputs.end());
    node.inputs.erase(std::unique(node.inputs.begin(), node.inputs.end()), node.inputs.end());
  }
}

PipedreamGraph GraphParser::run(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
  }
  for (const std::string_view line : split(text, "\n")) {
    ++line_;
    parse_line(line);
  }
  const std::size_t read = graph_.nodes.size() + broken_nodes_.size();
  if (read > kMaxLayers) {
    faults_.push_back({0, fmt::format("expected at most {} nodes, got {}", kMaxLayers, read)});
    return {};
  }
  if (read == 0) {
    faults_.push_back({0,
                       "expected at least one node line '<node> -- <description> -- "
                       "forward_compute_time=...', got none"});
    return {};
  }
  remove_duplicates();
  connect();
  return std::move(graph_);
}

/// Whether the node is called "Input", "Input0" or "Input(...)", but not "InputProjection".
bool is_named_input(std::string_view description) {
  constexpr std::string_view kName = "Input";
  if (!begins_with(description, kName)) return false;
  description.remove_prefix(kName.size());
  const std::size_t end = description.find_first_not_of("0123456789");
  return end == std::string_view::npos || description[end] == '(' || description[end] == ' ';
}

}  // namespace

LayerGraph keep_layers(std::vector<GraphNode> nodes) {
  std::vector<std::size_t> consumers(nodes.size());
  for (const GraphNode& node : nodes) {
    for (const std::int32_t input : node.inputs) ++consumers[static_cast<std::size_t>(input)];
  }
  std::vector<bool> left_out(nodes.size());
  std::vector<std::size_t> sinks;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    // A node with parameters or inputs of its own is a layer, whatever its name.
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

bool begins_as_node(std::string_view line) {
  const std::size_t end = line.find("--");
  return end != std::string_view::npos && node_number(trim(line.substr(0, end))).has_value();
}

PipedreamGraph parse_pipedream_graph(std::string_view text, const TimeUnit& times,
                                     std::vector<LineFault>& faults) {
  return GraphParser(times, faults).run(text);
}

}  // namespace dapple::interop
