// Checks a topology's description as a whole, beyond the syntax and range of its figures, and
// resolves the assignment of devices to NICs and PCIe roots.
#pragma once

#include <vector>

#include "dapple/core/error.h"
#include "dapple/topology/description.h"

namespace dapple {

inline constexpr std::int64_t kMostDevices = 65'536;
inline constexpr std::int64_t kMostPorts = 1'048'576;

/// Returns every fault that prevents the description from being expanded: those of device kinds,
/// server groups, network and uplinks, in this order, then those of totals and of server names.
/// Places are JSON pointers into a dapple-topology/1 document. Empty if the description is valid.
/// O(servers + devices + link matrix entries).
std::vector<Violation> check_description(const TopologyDescription& description);

/// Returns the NIC of each device of a server of the group: the NIC whose list names the device or,
/// without lists, NIC floor(d * k / n) for device d of n and k NICs. Empty if there are no NICs.
/// Requires: check_description() is empty.
std::vector<std::int32_t> nics_by_device(const ServerGroup& group);

/// Return the PCIe root of each device, and of each NIC, of a server of the group. Empty if there
/// are no roots. Requires: check_description() is empty.
std::vector<std::int32_t> roots_by_device(const ServerGroup& group);
std::vector<std::int32_t> roots_by_nic(const ServerGroup& group);

}  // namespace dapple
