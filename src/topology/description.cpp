#include "dapple/topology/description.h"

namespace dapple {

Duration transfer_time(Bytes size, const Link& link) {
  if (size.count == 0) return {};
  return round_up(occupation(size, link.bandwidth)) + link.latency;
}

Duration reduction_time(const BusBandwidthTable& table, const BusBandwidthTable::Point& point) {
  return {divide_up(Wide{2} * (table.ranks() - 1) * point.size.count * kNanosecondsPerSecond,
                    Wide{table.ranks()} * point.bandwidth.bytes_per_second)};
}

}  // namespace dapple
