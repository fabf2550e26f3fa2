#include "dapple/simulate/max_min.h"

#include <algorithm>
#include <limits>

#include "dapple/core/error.h"

namespace dapple::simulate {

/// Collects the uses of the ports whose capacity does not suffice for the caps of all their flows.
void MaxMinSolver::collect_uses(const std::vector<const FlowDemand*>& flows,
                                const std::vector<Rate>& capacities) {
  port_position_.resize(capacities.size(), -1);
  ports_.clear();
  uses_.clear();
  first_use_.clear();
  for (const FlowDemand* flow : flows) {
    for (const auto& [port, weight] : flow->ports) {
      std::int32_t& position = port_position_[port.position()];
      if (position < 0) {
        position = static_cast<std::int32_t>(ports_.size());
        ports_.push_back({.free = Wide{capacities[port.position()]} * kFullWeight});
      }
      ports_[static_cast<std::size_t>(position)].wanted += Wide{flow->cap} * weight;
    }
  }
  for (const FlowDemand* flow : flows) {
    first_use_.push_back(uses_.size());
    for (const auto& [port, weight] : flow->ports) {
      const std::int32_t position = port_position_[port.position()];
      PortState& state = ports_[static_cast<std::size_t>(position)];
      if (state.wanted <= state.free) continue;
      state.open += weight;
      uses_.push_back({position, weight});
    }
  }
  first_use_.push_back(uses_.size());
  for (const FlowDemand* flow : flows) {
    for (const auto& [port, weight] : flow->ports) port_position_[port.position()] = -1;
  }
}

/// All growing flows rise together until a port is full or a flow reaches its cap.
Rate MaxMinSolver::next_level(const std::vector<const FlowDemand*>& flows) {
  Rate level = flows[growing_.front()]->cap;
  for (const std::size_t f : growing_) level = std::min(level, flows[f]->cap);
  for (PortState& port : ports_) {
    if (port.open == 0) continue;
    // On a fast port of which the flows take little, the level may exceed the range of a Rate.
    port.level =
        static_cast<Rate>(std::min<Wide>(port.free / port.open, std::numeric_limits<Rate>::max()));
    level = std::min(level, port.level);
  }
  return level;
}

bool MaxMinSolver::is_stopped(const FlowDemand& flow, std::size_t position, Rate level) const {
  if (flow.cap == level) return true;
  for (std::size_t u = first_use_[position]; u < first_use_[position + 1]; ++u) {
    if (ports_[static_cast<std::size_t>(uses_[u].port)].level == level) return true;
  }
  return false;
}

const std::vector<Rate>& MaxMinSolver::solve(const std::vector<const FlowDemand*>& flows,
                                             const std::vector<Rate>& capacities) {
  collect_uses(flows, capacities);
  rates_.assign(flows.size(), 0);
  growing_.clear();
  for (std::size_t f = 0; f < flows.size(); ++f) {
    if (first_use_[f] == first_use_[f + 1]) {
      rates_[f] = flows[f]->cap;  // no port limits it
    } else {
      growing_.push_back(f);
    }
  }
  while (!growing_.empty()) {
    const Rate level = next_level(flows);
    still_growing_.clear();
    for (const std::size_t f : growing_) {
      if (is_stopped(*flows[f], f, level)) {
        rates_[f] = level;
      } else {
        still_growing_.push_back(f);
      }
    }
    check(still_growing_.size() < growing_.size(), "progressive filling did not stop any flow");
    for (const std::size_t f : growing_) {
      if (!is_stopped(*flows[f], f, level)) continue;
      for (std::size_t u = first_use_[f]; u < first_use_[f + 1]; ++u) {
        PortState& port = ports_[static_cast<std::size_t>(uses_[u].port)];
        port.free -= Wide{level} * uses_[u].weight;
        port.open -= uses_[u].weight;
      }
    }
    growing_.swap(still_growing_);
  }
  return rates_;
}

std::vector<Rate> max_min_rates(const std::vector<const FlowDemand*>& flows,
                                const std::vector<Rate>& capacities) {
  return MaxMinSolver().solve(flows, capacities);
}

}  // namespace dapple::simulate
