// Max-min fair rates of flows over shared ports, in whole units of 1/1024 byte per second.
//
// Source: progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2), with a cap
// per flow and a weight per flow and port.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"

namespace dapple::simulate {

/// A rate in bytes per second times 1024, so that shares of slow links keep their fraction.
using Rate = std::int64_t;
inline constexpr Rate kRatePerBytePerSecond = 1024;

/// A flow takes `weight` / kFullWeight of its own rate from each port that it passes.
inline constexpr std::int64_t kFullWeight = std::int64_t{1} << 30;

struct FlowDemand {
  Rate cap = 0;
  /// Distinct ports, each with a weight from 1 to kFullWeight.
  std::vector<std::pair<PortIndex, std::int64_t>> ports;
};

/// Computes max-min fair rates. The solver keeps its working memory between calls.
class MaxMinSolver {
 public:
  /// Returns rates such that no port carries more than its capacity (`capacities` by port index),
  /// and no flow could get more without taking rate from a flow that has no more than it, up to
  /// rounding down by one unit. A flow without ports gets its cap; a port with capacity for the
  /// caps of all its flows limits none of them. The result is valid until the next call.
  /// O(flows * (flows + ports in use)).
  const std::vector<Rate>& solve(const std::vector<const FlowDemand*>& flows,
                                 const std::vector<Rate>& capacities);

 private:
  /// The state of one port during progressive filling, while flows stop one after another.
  struct PortState {
    // The remaining capacity and the demand of all flows, both in rate * weight.
    Wide free = 0;
    Wide wanted = 0;

    // The sum of the weights of the flows that still grow.
    std::int64_t open = 0;
    // The rate to which those flows can grow together.
    Rate level = 0;
  };
  struct Use {
    std::int32_t port = 0;  // position in ports_
    std::int64_t weight = 0;
  };

  void collect_uses(const std::vector<const FlowDemand*>& flows,
                    const std::vector<Rate>& capacities);
  Rate next_level(const std::vector<const FlowDemand*>& flows);
  bool is_stopped(const FlowDemand& flow, std::size_t position, Rate level) const;

  std::vector<Rate> rates_;
  std::vector<PortState> ports_;
  // By port index, the position in ports_ while solve() collects uses; otherwise -1.
  std::vector<std::int32_t> port_position_;
  // The uses of ports that cannot carry the caps of all their flows, flow by flow.
  std::vector<Use> uses_;
  // Per flow, the position of its first use in uses_; then the total number of uses.
  std::vector<std::size_t> first_use_;
  // The flows whose rate still grows.
  std::vector<std::size_t> growing_;
  std::vector<std::size_t> still_growing_;
};

/// Returns MaxMinSolver::solve() of a new solver.
std::vector<Rate> max_min_rates(const std::vector<const FlowDemand*>& flows,
                                const std::vector<Rate>& capacities);

}  // namespace dapple::simulate
