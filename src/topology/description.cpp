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

std::int64_t server_count(const TopologyDescription& description) {
  std::int64_t servers = 0;
  for (const ServerGroup& group : description.servers) servers += group.count;
  return servers;
}

}  // namespace dapple
