// Strongly typed indices: `DeviceIndex d = StageIndex{1};` does not compile.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace dapple {

template <class Tag>
struct Index {
  std::int32_t value = 0;

  friend constexpr auto operator<=>(Index, Index) = default;

  /// Returns the position in a vector that holds one entry per index.
  constexpr std::size_t position() const { return static_cast<std::size_t>(value); }
  constexpr Index next() const { return Index{value + 1}; }
  constexpr Index previous() const { return Index{value - 1}; }
};

/// A layer of a ModelProfile, numbered after `repeat` is expanded.
using LayerIndex = Index<struct LayerTag>;
/// A stage of a Plan; stage 0 holds the first layer.
using StageIndex = Index<struct StageTag>;
/// A form of parallelism in which stages of a Plan run; form 0 is that of the plan.
using FormIndex = Index<struct FormTag>;
/// A device of a Topology, numbered server by server.
using DeviceIndex = Index<struct DeviceTag>;
/// A server of a Topology, numbered after `count` is expanded.
using ServerIndex = Index<struct ServerTag>;
/// A port of a Topology: one direction of one end of a link.
using PortIndex = Index<struct PortTag>;
/// A lane: the devices that run the same list of actions.
using LaneIndex = Index<struct LaneTag>;

/// Returns the index of the vector entry at `position`. Requires: position < 2^31, which holds for
/// every vector of this project.
template <class IndexType>
constexpr IndexType index_at(std::size_t position) {
  return IndexType{static_cast<std::int32_t>(position)};
}

}  // namespace dapple
