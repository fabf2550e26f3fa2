// Kinds of devices that are known by name: what files of a server's wiring do not say of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple::interop {

struct KnownDevice {
  std::string_view name;     // as our topologies call it
  std::string_view product;  // as the driver does, or a part of that
  std::vector<int> pci_ids;  // device ids of its vendor
  std::int64_t memory_mib = 0;
  std::int32_t lanes = 0;  // NVLinks (or xGMI), 0 without
  Bandwidth lane;          // of one of them, per direction, effective: NCCL's (or RCCL's) figure
  Bandwidth pcie;          // likewise, of its x16 port
};

/// By name, by PCI device id, or by the driver's name of the product; null if there is none.
const KnownDevice* find_device_kind(std::string_view name);
const KnownDevice* find_device_kind_of_pci(int device_id);
const KnownDevice* find_device_kind_of_product(std::string_view product);

/// "V100-16GB, V100-32GB, ...", for messages.
std::string known_device_names();

/// Most links of any kind that is known.
inline constexpr std::int32_t kMostLanes = 18;

}  // namespace dapple::interop
