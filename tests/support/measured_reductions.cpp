#include "measured_reductions.h"

#include <algorithm>
#include <cstdint>

namespace dapple::small {

namespace {

/// One to four messages of up to `most` bytes, faster or slower than any link would make them.
void add_points(Dice& dice, std::int64_t most, BusBandwidthTable& table) {
  std::int64_t size = 0;
  Duration least;
  for (std::int64_t i = dice.roll(1, 4); i > 0; --i) {
    size += dice.roll(1, std::max<std::int64_t>(1, most / 4));
    const BusBandwidthTable::Point point{
        {size}, {dice.roll(1, 40) * (dice.chance(50) ? 20'000'000 : 1'000'000'000)}};
    if (reduction_time(table, point) < least) continue;
    least = reduction_time(table, point);
    table.points.push_back(point);
  }
}

}  // namespace

void measure_reductions(Dice& dice, std::int64_t most, TopologyDescription& description) {
  for (ServerGroup& group : description.servers) {
    for (std::int32_t servers = 1; servers <= group.count; ++servers) {
      for (std::int32_t devices = 1; devices <= group.devices; ++devices) {
        if (servers * devices < 2 || dice.chance(50)) continue;
        BusBandwidthTable& table = group.bus_bandwidth.emplace_back();
        table.servers = servers;
        table.devices = devices;
        add_points(dice, most, table);
      }
    }
  }
}

}  // namespace dapple::small
