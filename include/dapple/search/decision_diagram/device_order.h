// The orders in which restricted decision diagrams give devices to stages.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/topology/topology.h"

namespace dapple::search {

/// All devices in an order, in which a stage has consecutive ones.
struct DeviceOrder {
  std::vector<DeviceIndex> devices;
  /// The number of servers whose devices take turns; 1 where those of a server are consecutive.
  std::int32_t interleaved = 1;
};

/// Returns the order of the devices' numbers.
DeviceOrder order_by_number(const Topology& topology);

/// Returns the orders in which the devices of two, three and four servers take turns, as many of
/// each at a time as make up those of a server together, or one where no number does: a stage on as
/// many devices as take a turn has some of each of the servers, and tensors pass to the next stage
/// within servers. Only those orders in which they can: the servers are alike, with a switch and
/// several devices each, and their number is a multiple.
std::vector<DeviceOrder> orders_in_turn(const Topology& topology);

/// Returns the orders in which all devices of one kind come before those of the next: for two or
/// three kinds all such orders, and for more the one of their first devices and its reverse. That
/// of the devices' numbers is left out; there are none for one kind. O(devices).
std::vector<DeviceOrder> orders_by_kind(const Topology& topology);

}  // namespace dapple::search
