// What a topology's description means as a whole, beyond the syntax and range of its figures.
#pragma once

#include <vector>

#include "dapple/core/error.h"
#include "dapple/topology/description.h"

namespace dapple {

inline constexpr std::int64_t kMostDevices = 65'536;
inline constexpr std::int64_t kMostPorts = 1'048'576;

/// Everything that keeps the description from being expanded, in the order of the file; places are
/// JSON pointers into a dapple-topology/1 document. Nothing if the description is sound.
/// O(servers + devices + link matrix entries).
std::vector<Violation> check_description(const TopologyDescription& description);

/// The NIC of each device of a group's server: the one whose list names it, or, without lists, with
/// n devices and k NICs, NIC floor(d * k / n). Empty if there are no NICs.
/// Requires: check_description() is empty.
std::vector<std::int32_t> nics_by_device(const ServerGroup& group);

/// The PCIe root of each device, and of each NIC, of a group's server. Empty if there are no roots.
/// Requires: check_description() is empty.
std::vector<std::int32_t> roots_by_device(const ServerGroup& group);
std::vector<std::int32_t> roots_by_nic(const ServerGroup& group);

}  // namespace dapple
