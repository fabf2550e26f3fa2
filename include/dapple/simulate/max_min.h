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

namespace dapple {

/// A rate: bytes per second times 1024, so that shares of slow links keep their fraction.
using Rate = std::int64_t;
inline constexpr Rate kRatePerBytePerSecond = 1024;

/// A flow takes `weight` / kFullWeight of its own rate from each port that it passes.
inline constexpr std::int64_t kFullWeight = std::int64_t{1} << 30;

struct FlowDemand {
  Rate cap = 0;
  std::vector<std::pair<PortIndex, std::int64_t>> ports;  // distinct ports, 1 <= weight <= full
};

/// Rates such that no port carries more than `capacities` (by port index) and no flow could get
/// more without a flow that has no more than it getting less, up to rounding down by one unit.
/// A flow without ports gets its cap. O(flows * (flows + ports in use)).
std::vector<Rate> max_min_rates(const std::vector<const FlowDemand*>& flows,
                                const std::vector<Rate>& capacities);

}  // namespace dapple
