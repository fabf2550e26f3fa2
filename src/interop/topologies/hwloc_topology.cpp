#include "interop/topologies/hwloc_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <pugixml.hpp>
#include <string_view>
#include <utility>

#include "interop/text/foreign_text.h"
#include "interop/text/xml_text.h"

namespace dapple::interop {
namespace {

// Applies to the objects of the matrix, and to devices and NICs together.
constexpr std::size_t kMostObjects = 512;
constexpr int kDeepest = 128;
constexpr std::string_view kNvml = "nvml";
constexpr std::int64_t kLaneMegabytes = 25'000;
constexpr std::int64_t kPascalLaneMegabytes = 20'000;

struct Ancestor {
  std::string id;
  std::string type;
};

/// A device or a NIC.
struct Place {
  std::string name;
  // The number of a device in NVML, "nvml12".
  std::int32_t number = 0;
  // The objects that contain it, from the machine down.
  std::vector<Ancestor> above;
};

class MachineReader {
 public:
  MachineReader(const ForeignFile& file, ImportNotes& notes) : file_(file), notes_(notes) {}
  ServerWiring run();

 private:
  void fail(const pugi::xml_node& node, std::string message) {
    faults_.push_back({line_of(node, file_.text), std::move(message)});
  }
  void read_objects(const pugi::xml_node& node, std::vector<Ancestor>& above);
  void read_matrix(const pugi::xml_node& matrix);
  std::vector<std::string> gathered(const pugi::xml_node& matrix, const char* name) const;
  void add_lanes(const pugi::xml_node& matrix, const std::vector<std::int32_t>& device_of,
                 const std::vector<std::string>& values);
  std::int32_t lanes_of(const pugi::xml_node& matrix, std::string_view megabytes);

  const ForeignFile& file_;
  ImportNotes& notes_;
  std::vector<LineFault> faults_;
  std::vector<Place> devices_;
  std::vector<Place> nics_;
  std::map<std::string, std::string> device_by_index_;  // gp_index -> name
  ServerWiring wiring_;
};

void MachineReader::read_objects(const pugi::xml_node& node, std::vector<Ancestor>& above) {
  if (above.size() > static_cast<std::size_t>(kDeepest)) {
    fail(node, fmt::format("expected at most {} objects in each other, got more", kDeepest));
    return;
  }
  for (const pugi::xml_node& object : node.children("object")) {
    const std::string type = object.attribute("type").value();
    const std::string name = object.attribute("name").value();
    const std::string index = object.attribute("gp_index").value();
    const bool is_system_device = type == "OSDev";
    if (is_system_device && begins_with(name, kNvml)) {
      device_by_index_.emplace(index, name);
      const std::string_view digits = std::string_view(name).substr(kNvml.size());
      devices_.push_back({name, parse_count(digits).value_or(INT32_MAX), above});
    } else if (is_system_device && object.attribute("osdev_type").as_int(-1) == 3) {
      nics_.push_back({.name = name, .above = above});
    }
    above.push_back({index, type});
    read_objects(object, above);
    above.pop_back();
  }
}

/// Returns the words of all children of that name.
std::vector<std::string> MachineReader::gathered(const pugi::xml_node& matrix,
                                                 const char* name) const {
  std::vector<std::string> words;
  for (const pugi::xml_node& part : matrix.children(name)) {
    std::string text = part.child_value();
    std::replace(text.begin(), text.end(), '\n', ' ');
    for (const std::string_view word : words_of(text)) words.emplace_back(word);
  }
  return words;
}

std::int32_t MachineReader::lanes_of(const pugi::xml_node& matrix, std::string_view megabytes) {
  const std::optional<std::int32_t> figure = parse_count(megabytes);
  if (figure && *figure % kLaneMegabytes == 0) {
    return static_cast<std::int32_t>(*figure / kLaneMegabytes);
  }
  if (figure && *figure % kPascalLaneMegabytes == 0) {
    return static_cast<std::int32_t>(*figure / kPascalLaneMegabytes);
  }
  fail(matrix, fmt::format("expected MB/s of whole links of {} or {}, got '{}'", kLaneMegabytes,
                           kPascalLaneMegabytes, shown(megabytes)));
  return 0;
}

void MachineReader::add_lanes(const pugi::xml_node& matrix,
                              const std::vector<std::int32_t>& device_of,
                              const std::vector<std::string>& values) {
  const std::size_t count = device_of.size();
  std::vector<std::int32_t> to_switches(devices_.size(), 0);
  bool has_switch = false;
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = 0; b < count; ++b) {
      if (a == b || device_of[a] < 0) continue;
      const std::int32_t lanes = lanes_of(matrix, values[a * count + b]);
      if (device_of[b] >= 0) {
        wiring_.lanes(device_of[a], device_of[b]) = lanes;
      } else if (lanes > 0) {
        has_switch = true;
        to_switches[static_cast<std::size_t>(device_of[a])] += lanes;
      }
    }
  }
  const bool all = std::count(to_switches.begin(), to_switches.end(), 0) == 0;
  if (has_switch && all) {
    wiring_.switch_lanes = to_switches;
  } else if (has_switch) {
    notes_.warn(
        fmt::format("{}: only some devices have links to switches; they are left out", file_.name));
  }
}

void MachineReader::read_matrix(const pugi::xml_node& matrix) {
  const std::vector<std::string> indexes = gathered(matrix, "indexes");
  const std::vector<std::string> values = gathered(matrix, "u64values");
  if (indexes.empty() || indexes.size() > kMostObjects ||
      values.size() != indexes.size() * indexes.size()) {
    fail(matrix,
         fmt::format("expected the indexes of 1 to {} objects and a value for each two, got "
                     "{} and {}",
                     kMostObjects, indexes.size(), values.size()));
    return;
  }
  std::vector<std::int32_t> device_of;
  for (const std::string& index : indexes) {
    // An index is "OSDev:17" if the objects are of several types, else "17".
    const std::string number = index.substr(index.find(':') + 1);
    const auto named = device_by_index_.find(number);
    const auto found = std::find_if(devices_.begin(), devices_.end(), [&](const Place& device) {
      return named != device_by_index_.end() && device.name == named->second;
    });
    device_of.push_back(
        found == devices_.end() ? -1 : static_cast<std::int32_t>(found - devices_.begin()));
  }
  add_lanes(matrix, device_of, values);
}

PcieDistance between(const Place& a, const Place& b) {
  std::size_t common = 0;
  while (common < std::min(a.above.size(), b.above.size()) &&
         a.above[common].id == b.above[common].id) {
    ++common;
  }
  const auto is_on_package = [&](const Place& place) {
    return std::any_of(place.above.begin() + static_cast<std::ptrdiff_t>(common), place.above.end(),
                       [](const Ancestor& object) { return object.type == "Package"; });
  };
  if (common == 0 || is_on_package(a) || is_on_package(b)) return PcieDistance::Sys;
  const std::string& type = a.above[common - 1].type;
  if (type == "PCIDev") return PcieDistance::Pix;
  return type == "Bridge" ? PcieDistance::Pxb : PcieDistance::Node;
}

ServerWiring MachineReader::run() {
  pugi::xml_document document;
  parse_xml(document, file_.text, file_.name);
  const pugi::xml_node machine = document.child("topology");
  if (std::string_view(machine.attribute("version").value()).substr(0, 1) != "2") {
    throw_faults({{0, "expected <topology version=\"2.0\"> of hwloc 2, got another"}}, file_.name);
  }
  std::vector<Ancestor> above;
  read_objects(machine, above);
  // Objects stand by package and bridge, devices have the numbers that programs know them by.
  std::stable_sort(devices_.begin(), devices_.end(),
                   [](const Place& a, const Place& b) { return a.number < b.number; });
  if (devices_.empty()) fail(machine, "expected OSDev objects nvml0, nvml1, ..., got none");
  if (devices_.size() + nics_.size() > kMostObjects) {
    fail(machine, fmt::format("expected at most {} devices and NICs, got more", kMostObjects));
  }
  throw_faults(std::exchange(faults_, {}), file_.name);
  wiring_.file = file_.name;
  wiring_.source = "hwloc XML";
  wiring_.devices = static_cast<std::int32_t>(devices_.size());
  wiring_.lanes = Eigen::MatrixXi::Zero(wiring_.devices, wiring_.devices);
  std::vector<Place> ends = devices_;
  for (const Place& nic : nics_) {
    ends.push_back(nic);
    wiring_.nics.push_back({nic.name, {}});
  }
  wiring_.distances.assign(ends.size(), std::vector<PcieDistance>(ends.size()));
  for (std::size_t a = 0; a < ends.size(); ++a) {
    for (std::size_t b = 0; b < ends.size(); ++b) {
      wiring_.distances[a][b] = a == b ? PcieDistance::Pix : between(ends[a], ends[b]);
    }
  }
  for (const char* tag : {"distances2", "distances2hetero"}) {
    for (const pugi::xml_node& matrix : machine.children(tag)) {
      if (std::string_view(matrix.attribute("name").value()) == "NVLinkBandwidth") {
        read_matrix(matrix);
      }
    }
  }
  throw_faults(std::move(faults_), file_.name);
  make_symmetric(wiring_, notes_);
  return std::move(wiring_);
}

}  // namespace

bool is_hwloc_topology(std::string_view text) {
  return text.find("<topology") != std::string_view::npos &&
         text.find("<object") != std::string_view::npos;
}

ServerWiring read_hwloc_topology(const ForeignFile& file, ImportNotes& notes) {
  return MachineReader(file, notes).run();
}

}  // namespace dapple::interop
