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

/// A rate: bytes per second times 1024, so that shares of slow links keep their fraction.
using Rate = std::int64_t;
inline constexpr Rate kRatePerBytePerSecond = 1024;

/// A flow takes `weight` / kFullWeight of its own rate from each port that it passes.
inline constexpr std::int64_t kFullWeight = std::int64_t{1} << 30;

struct FlowDemand {
  Rate cap = 0;
  std::vector<std::pair<PortIndex, std::int64_t>> ports;  // distinct ports, 1 <= weight <= full
};

/// Keeps its working memory from one question to the next.
class MaxMinSolver {
 public:
  /// Rates such that no port carries more than `capacities` (by port index) and no flow could get
  /// more without a flow that has no more than it getting less, up to rounding down by one unit.
  /// A flow without ports gets its cap; a port with room for the caps of all its flows holds up
  /// none of them. Valid until the next call. O(flows * (flows + ports in use)).
  const std::vector<Rate>& solve(const std::vector<const FlowDemand*>& flows,
                                 const std::vector<Rate>& capacities);

 private:
  /// What is left of one port while flows are stopped one after another.
  struct PortState {
    Wide free = 0;          // in rate * weight
    Wide wanted = 0;        // by all flows, likewise
    std::int64_t open = 0;  // weights of the flows that still grow
    Rate level = 0;         // to which those flows can grow together
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
  std::vector<std::int32_t> port_position_;  // by port index, where it is in use
  std::vector<Use> uses_;                    // flow by flow
  std::vector<std::size_t> first_use_;       // per flow, and the end
  std::vector<std::size_t> growing_;         // flows
  std::vector<std::size_t> still_growing_;
};

/// MaxMinSolver::solve() with working memory of its own.
std::vector<Rate> max_min_rates(const std::vector<const FlowDemand*>& flows,
                                const std::vector<Rate>& capacities);

}  // namespace dapple::simulate
