// What can be crowded beside devices' and NICs' own ports, put into a random description: PCIe
// roots, racks and pods.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dapple/topology/description.h"
#include "dice.h"

namespace dapple::small {

/// Everything of a server below one to three roots, each thing below any of them.
void add_roots(Dice& dice, const std::function<Link()>& link, ServerGroup& group);

/// Groups alike of one or more that hold just so many members together.
std::vector<UplinkGroup> random_uplinks(Dice& dice, const std::function<Link()>& link,
                                        std::int64_t members);

/// Each of them in half of the descriptions, or of the groups of servers.
void crowd_ways(Dice& dice, const std::function<Link()>& link, TopologyDescription& description);

}  // namespace dapple::small
