// Parses PipeDream's graph text into nodes and edges. Source of the format: msr-fiddle/pipedream,
// graph/; parse_pipedream_graph() lists the variations of published files that are accepted, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {

struct GraphNode {
  std::int64_t number = 0;  // 12 for "node12"
  std::int64_t line = 0;    // from 1
  std::string description;
  Duration forward;
  Duration backward;
  // The size of all outputs of the node together.
  Bytes output;
  Bytes parameters;
  // The positions of the nodes whose outputs this one takes, ascending and without repetitions.
  std::vector<std::int32_t> inputs;
  // The stage that PipeDream's optimizer assigned to the node, if any.
  std::optional<std::int32_t> stage = std::nullopt;
};

struct PipedreamGraph {
  std::vector<GraphNode> nodes;  // by ascending number
};

/// Whether the line begins like a node line: "node12 --".
bool begins_as_node(std::string_view line);

/// Parses a graph whose lines may have any order. Figures may be integers or decimals, with or
/// without a blank after the comma; an activation_size of several tensors "[a; b]" counts as their
/// sum; a stage_id that is not a number is ignored; edges may begin with any white space; lines may
/// end in CR LF, and the last line need not end in a line break. Cycles are not detected. Appends
/// all faults to `faults`; the graph must only be used if there are none. O(length of the text),
/// times log nodes.
PipedreamGraph parse_pipedream_graph(std::string_view text, const TimeUnit& times,
                                     std::vector<LineFault>& faults);

/// A graph without the nodes that are not layers: `Input` nodes that have neither parameters nor
/// inputs, and `__getitem__` sinks that neither take time nor have parameters.
struct LayerGraph {
  // The remaining nodes, whose inputs are positions among them.
  std::vector<GraphNode> nodes;
  // The `Input` nodes that were removed.
  std::vector<GraphNode> inputs;
};
/// Removes the nodes that are not layers. O(nodes + edges).
LayerGraph keep_layers(std::vector<GraphNode> nodes);

}  // namespace dapple::interop
