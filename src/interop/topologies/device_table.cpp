#include "interop/topologies/device_table.h"

#include <algorithm>

namespace dapple::interop {
namespace {

constexpr Bandwidth kNoLanes{0};
// The bandwidth of one NVLink for SM70, SM80, SM86, SM90 and SM100: NVIDIA/nccl src/graph/topo.h.
constexpr Bandwidth kVolta{20'000'000'000};
constexpr Bandwidth kAmpere{20'000'000'000};
constexpr Bandwidth kAmpereCard{12'000'000'000};
constexpr Bandwidth kHopper{20'600'000'000};
constexpr Bandwidth kBlackwell{40'100'000'000};
// The bandwidth of one xGMI link: ROCm/rccl src/graph/topo.h.
constexpr Bandwidth kVega{24'000'000'000};
constexpr Bandwidth kMi200{36'000'000'000};
constexpr Bandwidth kMi300{48'000'000'000};
// NCCL's bandwidth of PCIe with 16 lanes: lanes x {8 GT/s: 60, 16: 120, 32: 240} / 80 GB/s.
constexpr Bandwidth kPcie3{12'000'000'000};
constexpr Bandwidth kPcie4{24'000'000'000};
constexpr Bandwidth kPcie5{48'000'000'000};

/// Returns the mebibytes of a datasheet's GB, which are taken for GiB, as in the shipped
/// topologies. The driver reports at most 1 GiB less, which is what a topology reserves
/// (nvidia-smi: V100 16,160 and 32,510 MiB, H100 81,559, H200 143,771, B200 183,359, RTX 6000 Ada
/// 49,140, RTX 3090 24,576, GTX 1080 Ti 11,178). AMD states GiB: ROCm's "GPU hardware
/// specifications", MI250X 128 for two dies.
constexpr std::int64_t gib(std::int64_t count) {
  return count * 1024;
}
// The memory that the driver reports for 24 GB cards that store error-correcting codes in it.
constexpr std::int64_t kA10Mebibytes = 23'028;
constexpr std::int64_t kL4Mebibytes = 23'034;

const std::vector<KnownDevice>& table() {
  static const std::vector<KnownDevice> kTable{
      {"V100-16GB", "V100-SXM2-16GB", {0x1db1}, gib(16), 6, kVolta, kPcie3},
      {"V100-32GB", "V100-SXM2-32GB", {0x1db5}, gib(32), 6, kVolta, kPcie3},
      {"A100-40GB", "A100-SXM4-40GB", {0x20b0}, gib(40), 12, kAmpere, kPcie4},
      {"A100-80GB", "A100-SXM4-80GB", {0x20b2}, gib(80), 12, kAmpere, kPcie4},
      {"A100-PCIe-40GB", "A100-PCIE-40GB", {0x20f1}, gib(40), 12, kAmpere, kPcie4},
      {"A100-PCIe-80GB", "A100 80GB PCIe", {0x20b5}, gib(80), 12, kAmpere, kPcie4},
      {"A800-80GB", "A800-SXM4-80GB", {0x20f3}, gib(80), 8, kAmpere, kPcie4},
      {"H100-80GB", "H100 80GB HBM3", {0x2330}, gib(80), 18, kHopper, kPcie5},
      {"H100-PCIe-80GB", "H100 PCIe", {0x2331}, gib(80), 12, kHopper, kPcie5},
      {"H800-80GB", "H800", {0x2324}, gib(80), 8, kHopper, kPcie5},
      {"H200-141GB", "H200", {0x2335}, gib(141), 18, kHopper, kPcie5},
      {"B200-180GB", "B200", {0x2901}, gib(180), 18, kBlackwell, kPcie5},
      {"A10-24GB", "A10", {0x2236}, kA10Mebibytes, 0, kNoLanes, kPcie4},
      {"L4-24GB", "L4", {0x27b8}, kL4Mebibytes, 0, kNoLanes, kPcie4},
      {"RTX-6000-Ada", "RTX 6000 Ada", {0x26b1}, gib(48), 0, kNoLanes, kPcie4},
      {"RTX-3090", "RTX 3090", {0x2204}, gib(24), 4, kAmpereCard, kPcie4},
      {"GTX-1080-Ti", "GTX 1080 Ti", {0x1b06}, gib(11), 0, kNoLanes, kPcie3},
      {"MI100-32GB", "MI100", {0x738c}, gib(32), 3, kVega, kPcie4},
      {"MI250X-64GB", "MI250X", {0x7408, 0x740c}, gib(64), 8, kMi200, kPcie4},
      {"MI300X-192GB", "MI300X", {0x74a1}, gib(192), 7, kMi300, kPcie5},
  };
  return kTable;
}

template <class Holds>
const KnownDevice* find_if(const Holds& holds) {
  const auto found = std::find_if(table().begin(), table().end(), holds);
  return found == table().end() ? nullptr : &*found;
}

}  // namespace

const KnownDevice* find_device_kind(std::string_view name) {
  return find_if([&](const KnownDevice& known) { return known.name == name; });
}

const KnownDevice* find_device_kind_of_pci(int device_id) {
  return find_if([&](const KnownDevice& known) {
    return std::count(known.pci_ids.begin(), known.pci_ids.end(), device_id) > 0;
  });
}

const KnownDevice* find_device_kind_of_product(std::string_view product) {
  // "A10" is also a part of "A100", so the longest match counts.
  const KnownDevice* best = nullptr;
  for (const KnownDevice& known : table()) {
    const bool fits = product.find(known.product) != std::string_view::npos;
    if (fits && (best == nullptr || best->product.size() < known.product.size())) best = &known;
  }
  return best;
}

std::string known_device_names() {
  std::string names;
  for (const KnownDevice& known : table()) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

}  // namespace dapple::interop
