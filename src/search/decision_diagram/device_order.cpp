#include "dapple/search/decision_diagram/device_order.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "dapple/topology/servers_of_kind.h"

namespace dapple::search {
namespace {

/// Whether the devices of so many servers can take turns.
bool can_take_turns(const Topology& topology, std::int32_t servers) {
  const std::vector<ServerGroup>& groups = topology.description().servers;
  return groups.size() == 1 && groups.front().links.kind == ServerLinks::Kind::Switch &&
         groups.front().devices > 1 && groups.front().count % servers == 0;
}

DeviceOrder order_in_turn(const Topology& topology, std::int32_t interleaved) {
  DeviceOrder order{.devices = {}, .interleaved = interleaved};
  const std::int32_t devices = topology.server({0}).device_count;
  const std::int32_t turn = devices % interleaved == 0 ? devices / interleaved : 1;
  for (std::int32_t first = 0; first < topology.server_count(); first += interleaved) {
    for (std::int32_t begin = 0; begin < devices; begin += turn) {
      for (std::int32_t s = first; s < first + interleaved; ++s) {
        for (std::int32_t i = begin; i < begin + turn; ++i) {
          order.devices.push_back({topology.server({s}).first_device.value + i});
        }
      }
    }
  }
  return order;
}

/// Returns the positions of so many kinds in other orders.
std::vector<std::vector<std::size_t>> permutations(std::size_t kinds) {
  constexpr std::size_t kMostKinds = 3;  // with six orders
  std::vector<std::size_t> order(kinds);
  for (std::size_t i = 0; i < kinds; ++i) order[i] = i;
  std::vector<std::vector<std::size_t>> orders{order};
  if (kinds <= kMostKinds) {
    while (std::next_permutation(order.begin(), order.end())) orders.push_back(order);
  } else {
    orders.emplace_back(order.rbegin(), order.rend());
  }
  return orders;
}

}  // namespace

DeviceOrder order_by_number(const Topology& topology) {
  DeviceOrder order;
  for (std::int32_t i = 0; i < topology.device_count(); ++i) order.devices.push_back({i});
  return order;
}

std::vector<DeviceOrder> orders_in_turn(const Topology& topology) {
  std::vector<DeviceOrder> orders;
  for (const std::int32_t servers : {2, 3, 4}) {
    if (can_take_turns(topology, servers)) orders.push_back(order_in_turn(topology, servers));
  }
  return orders;
}

std::vector<DeviceOrder> orders_by_kind(const Topology& topology) {
  std::vector<DeviceOrder> orders;
  const std::vector<std::int32_t> kinds = kinds_in_use(topology);
  if (kinds.size() < 2) return orders;
  const DeviceOrder by_number = order_by_number(topology);
  for (const std::vector<std::size_t>& permutation : permutations(kinds.size())) {
    DeviceOrder order;
    for (const std::size_t position : permutation) {
      std::copy_if(
          by_number.devices.begin(), by_number.devices.end(), std::back_inserter(order.devices),
          [&](DeviceIndex device) { return topology.device(device).kind == kinds[position]; });
    }
    if (order.devices != by_number.devices) orders.push_back(std::move(order));
  }
  return orders;
}

}  // namespace dapple::search
