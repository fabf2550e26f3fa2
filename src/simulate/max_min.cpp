#include "dapple/simulate/max_min.h"

#include <algorithm>

#include "dapple/core/error.h"

namespace dapple {
namespace {

/// What is left of one port while flows are frozen one after another.
struct PortState {
  PortIndex port;
  Wide free = 0;          // in rate * weight
  std::int64_t open = 0;  // weights of the flows that still grow
  Rate level = 0;         // to which those flows can grow together
};

std::vector<PortState> ports_in_use(const std::vector<const FlowDemand*>& flows,
                                    const std::vector<Rate>& capacities) {
  std::vector<PortState> states;
  for (const FlowDemand* flow : flows) {
    for (const auto& [port, weight] : flow->ports) states.push_back({.port = port});
  }
  const auto by_port = [](const PortState& a, const PortState& b) { return a.port < b.port; };
  std::sort(states.begin(), states.end(), by_port);
  const auto same = [](const PortState& a, const PortState& b) { return a.port == b.port; };
  states.erase(std::unique(states.begin(), states.end(), same), states.end());
  for (PortState& state : states) {
    state.free = Wide{capacities[state.port.position()]} * kFullWeight;
  }
  return states;
}

PortState& state_of(std::vector<PortState>& states, PortIndex port) {
  return *std::lower_bound(states.begin(), states.end(), port,
                           [](const PortState& state, PortIndex p) { return state.port < p; });
}

}  // namespace

std::vector<Rate> max_min_rates(const std::vector<const FlowDemand*>& flows,
                                const std::vector<Rate>& capacities) {
  std::vector<PortState> states = ports_in_use(flows, capacities);
  std::vector<Rate> rates(flows.size(), 0);
  std::vector<std::size_t> growing;
  for (std::size_t f = 0; f < flows.size(); ++f) {
    growing.push_back(f);
    for (const auto& [port, weight] : flows[f]->ports) state_of(states, port).open += weight;
  }
  while (!growing.empty()) {
    // All growing flows rise together until a port is full or a flow has all that it wants.
    Rate level = flows[growing.front()]->cap;
    for (const std::size_t f : growing) level = std::min(level, flows[f]->cap);
    for (PortState& state : states) {
      if (state.open == 0) continue;
      state.level = static_cast<Rate>(state.free / state.open);
      level = std::min(level, state.level);
    }
    const auto is_stopped = [&](std::size_t f) {
      if (flows[f]->cap == level) return true;
      return std::any_of(
          flows[f]->ports.begin(), flows[f]->ports.end(),
          [&](const auto& use) { return state_of(states, use.first).level == level; });
    };
    const auto stopped = std::stable_partition(growing.begin(), growing.end(),
                                               [&](std::size_t f) { return !is_stopped(f); });
    check(stopped != growing.end(), "progressive filling did not stop any flow");
    for (auto f = stopped; f != growing.end(); ++f) {
      rates[*f] = level;
      for (const auto& [port, weight] : flows[*f]->ports) {
        PortState& state = state_of(states, port);
        state.free -= Wide{level} * weight;
        state.open -= weight;
      }
    }
    growing.erase(stopped, growing.end());
  }
  return rates;
}

}  // namespace dapple
