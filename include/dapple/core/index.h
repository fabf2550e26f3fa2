// Indices that cannot be confused: `DeviceIndex d = StageIndex{1};` does not compile.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace dapple {

template <class Tag>
struct Index {
  std::int32_t value = 0;

  friend constexpr auto operator<=>(Index, Index) = default;

  /// Position in a vector that holds one entry per index.
  constexpr std::size_t position() const { return static_cast<std::size_t>(value); }
  constexpr Index next() const { return Index{value + 1}; }
  constexpr Index previous() const { return Index{value - 1}; }
};

using LayerIndex = Index<struct LayerTag>;    // in a ModelProfile, after `repeat`
using StageIndex = Index<struct StageTag>;    // in a Plan, 0 holds the first layer
using DeviceIndex = Index<struct DeviceTag>;  // in a Topology, server by server
using ServerIndex = Index<struct ServerTag>;  // in a Topology, after `count`
using PortIndex = Index<struct PortTag>;      // one direction of a link, in a Topology
using LaneIndex = Index<struct LaneTag>;      // devices that run the same list of actions

/// Index of a vector's entry. Requires: position < 2^31; the vectors of this project stay below.
template <class IndexType>
constexpr IndexType index_at(std::size_t position) {
  return IndexType{static_cast<std::int32_t>(position)};
}

}  // namespace dapple
