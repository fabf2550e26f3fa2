#include "crowded_ways.h"

#include <algorithm>
#include <cstddef>

namespace dapple::small {

void add_roots(Dice& dice, const std::function<Link()>& link, ServerGroup& group) {
  const std::int64_t roots = dice.roll(1, 3);
  for (std::int64_t i = 0; i < roots; ++i) {
    group.pcie_roots.push_back({.source = "", .link = link(), .devices = {}, .nics = {}});
  }
  const auto any_root = [&]() -> PcieRoot& {
    return group.pcie_roots[static_cast<std::size_t>(dice.roll(0, roots - 1))];
  };
  for (std::int32_t device = 0; device < group.devices; ++device) {
    any_root().devices.push_back(device);
  }
  const auto nics = static_cast<std::int32_t>(group.nics.size());
  for (std::int32_t nic = 0; nic < nics; ++nic) any_root().nics.push_back(nic);
}

std::vector<UplinkGroup> random_uplinks(Dice& dice, const std::function<Link()>& link,
                                        std::int64_t members) {
  std::vector<UplinkGroup> groups;
  while (members > 0) {
    const std::int64_t each = dice.roll(1, members);
    const std::int64_t count = dice.roll(1, members / each);
    members -= count * each;
    const Link uplink = link();
    UplinkGroup group;
    group.count = static_cast<std::int32_t>(count);
    group.members = static_cast<std::int32_t>(each);
    group.latency = uplink.latency;
    if (dice.chance(50)) {
      group.bandwidth = uplink.bandwidth;
    } else {
      group.oversubscription = {dice.roll(kOne.billionths / 2, 8 * kOne.billionths)};
    }
    groups.push_back(group);
  }
  return groups;
}

void crowd_ways(Dice& dice, const std::function<Link()>& link, TopologyDescription& description) {
  std::int64_t servers = 0;
  for (ServerGroup& group : description.servers) {
    servers += group.count;
    if (dice.chance(50)) add_roots(dice, link, group);
  }
  if (dice.chance(50)) return;
  description.racks = random_uplinks(dice, link, servers);
  if (dice.chance(50)) return;
  std::int64_t racks = 0;
  for (const UplinkGroup& group : description.racks) racks += group.count;
  description.pods = random_uplinks(dice, link, racks);
}

}  // namespace dapple::small
