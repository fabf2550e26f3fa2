// The table of known kinds of devices, with the figures that files about the wiring of a server do
// not state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple::interop {

struct KnownDevice {
  // The name in our topologies.
  std::string_view name;
  // The driver's name of the product, or a part of it.
  std::string_view product;
  // The PCI device ids that its vendor assigned.
  std::vector<int> pci_ids;
  std::int64_t memory_mib = 0;
  // The number of NVLinks (or xGMI links); 0 if it has none.
  std::int32_t lanes = 0;
  // The effective bandwidth of one of these links per direction, as in NCCL (or RCCL).
  Bandwidth lane;
  // The effective bandwidth of its PCIe x16 port per direction, as in NCCL.
  Bandwidth pcie;
};

// Find a known device by its name, by a PCI device id, or by the driver's name of the product; null
// if there is none.
const KnownDevice* find_device_kind(std::string_view name);
const KnownDevice* find_device_kind_of_pci(int device_id);
const KnownDevice* find_device_kind_of_product(std::string_view product);

/// Returns "V100-16GB, V100-32GB, ..." for messages.
std::string known_device_names();

/// The largest number of links of any known device.
inline constexpr std::int32_t kMostLanes = 18;

}  // namespace dapple::interop
