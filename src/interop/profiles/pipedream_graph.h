// PipeDream's graph text as nodes and edges. Source of the format: msr-fiddle/pipedream, graph/;
// departures are what published files vary in (see parse_pipedream_graph).
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
  std::int64_t number = 0;  // of "node12"
  std::int64_t line = 0;    // counted from 1
  std::string description;
  Duration forward;
  Duration backward;
  Bytes output;  // of all its outputs together
  Bytes parameters;
  std::vector<std::int32_t> inputs;                  // positions, ascending, each once
  std::optional<std::int32_t> stage = std::nullopt;  // that its planner has put it in
};

struct PipedreamGraph {
  std::vector<GraphNode> nodes;  // by number
};

inline constexpr std::size_t kMaxGraphNodes = 100'000;

/// True if the line begins as a node does: "node12 --".
bool begins_as_node(std::string_view line);

/// Lines in any order. Figures may be integers or decimals, with or without a blank after the
/// comma, an activation_size of several tensors "[a; b]" is their sum, a stage_id that is no
/// number counts as none; an edge begins with any white space; lines may end in CR LF, and the last
/// one in nothing. Cycles are not looked for. Appends what is wrong to `faults`; the graph is to be
/// used only if nothing is. O(length of the text), times log nodes.
PipedreamGraph parse_pipedream_graph(std::string_view text, const TimeUnit& times,
                                     std::vector<LineFault>& faults);

/// What remains of a graph without the nodes that are no layers: `Input` nodes that have neither
/// parameters nor inputs, and `__getitem__` sinks without work.
struct LayerGraph {
  std::vector<GraphNode> nodes;   // inputs are positions among them
  std::vector<GraphNode> inputs;  // the `Input` nodes that are left out
};
/// O(nodes + edges).
LayerGraph keep_layers(std::vector<GraphNode> nodes);

}  // namespace dapple::interop
