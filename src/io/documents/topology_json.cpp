#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "dapple/io/documents/documents.h"
#include "io/documents/embedded.h"
#include "io/json/number_text.h"
#include "io/units/units.h"

namespace dapple::io {
namespace {

constexpr std::int64_t kMaxDevices = 65'536;
constexpr FactorRange kTimeScale{Factor{1}, Factor{1'000 * kOne.billionths}};
constexpr FactorRange kSlowdown{kOne, Factor{1'000 * kOne.billionths}};
constexpr FactorRange kOversubscription{Factor{1}, Factor{1'000'000 * kOne.billionths}};
constexpr FactorRange kPrice{Factor{0}, Factor{1'000'000 * kOne.billionths}};

Link read_link(ObjectReader& object) {
  Link link;
  link.bandwidth = read_bandwidth(object.field("bandwidth")).value_or(Bandwidth{1});
  link.latency = read_duration(object.field("latency")).value_or(Duration{});
  return link;
}

/// Calls read_member(member, name) for every member of the object whose key is a valid name.
template <class ReadMember>
void read_named_members(const Field& field, const ReadMember& read_member) {
  ObjectReader object(field);
  const std::vector<Field> members = object.members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::string& name = field.value().keys[i];
    if (is_name(members[i], name)) read_member(members[i], name);
  }
  object.finish();
}

std::map<std::string, Factor> read_time_scale(const Field& field) {
  std::map<std::string, Factor> scales;
  if (!field.present()) return scales;
  read_named_members(field, [&](const Field& member, const std::string& device) {
    if (const auto scale = read_factor(member, kTimeScale)) scales.emplace(device, *scale);
  });
  return scales;
}

DeviceKind read_device_kind(const Field& field, const std::string& name) {
  ObjectReader object(field);
  DeviceKind kind;
  kind.name = name;
  kind.source = optional_text(object.field("source"));
  const std::optional<Bytes> memory = read_size(object.field("memory"), Bytes{1});
  kind.memory = memory.value_or(Bytes{});
  if (const Field reserved = object.field("reserved"); reserved.present()) {
    kind.reserved = read_size(reserved, Bytes{0}).value_or(Bytes{});
    if (memory && kind.reserved >= *memory)
      reserved.refuse(fmt::format("less than the memory of {}", size_text(*memory)));
  }
  kind.time_scale = read_time_scale(object.field("time_scale"));
  if (const Field price = object.field("price_per_hour"); price.present())
    kind.price_per_hour = read_factor(price, kPrice);
  object.refuse_reserved({"profile"});
  object.finish();
  return kind;
}

/// Reads kinds and sorts them by name, so that the order of the keys in the file does not matter.
template <class Kind>
std::vector<Kind> read_kinds(const Field& field,
                             Kind (*read_kind)(const Field&, const std::string&)) {
  std::vector<Kind> kinds;
  read_named_members(field, [&](const Field& member, const std::string& name) {
    kinds.push_back(read_kind(member, name));
  });
  std::sort(kinds.begin(), kinds.end(),
            [](const Kind& a, const Kind& b) { return a.name < b.name; });
  return kinds;
}

std::vector<DeviceKind> read_device_kinds(const Field& field) {
  const JsonValue* object = field.value_of_kind(JsonValue::Kind::Object);
  if (object != nullptr && object->keys.empty()) field.refuse("at least one kind of device");
  return read_kinds(field, read_device_kind);
}

LinkKind read_link_kind(const Field& field, const std::string& name) {
  if (name == "-") field.add("expected a name for a link, got \"-\", which means no link");
  ObjectReader object(field);
  LinkKind kind;
  kind.name = name;
  kind.source = optional_text(object.field("source"));
  kind.link = read_link(object);
  kind.lanes = static_cast<std::int32_t>(optional_integer(object.field("lanes"), {1, 1'000}, 1));
  object.finish();
  return kind;
}

/// Reads an entry of a link matrix and returns its position in `kinds`, or kNoLink for "-".
std::optional<int> read_matrix_entry(const Field& field, const std::vector<LinkKind>& kinds) {
  if (const JsonValue* value = field.value_of_kind(JsonValue::Kind::Text)) {
    if (value->text == "-") return kNoLink;
    for (std::size_t i = 0; i < kinds.size(); ++i)
      if (kinds[i].name == value->text) return static_cast<int>(i);
  }
  field.refuse("the name of a kind of link, or \"-\" for none");
  return std::nullopt;
}

/// Whether the matrix has a row and a column for each device; records a violation otherwise. The
/// check precedes any allocation, so that the matrix is no larger than the text that was read.
bool has_shape(const ArrayReader& rows, const Field& field, std::size_t devices) {
  if (!rows.valid()) return false;
  if (rows.size() != devices) {
    field.add(
        fmt::format("expected a row for each of the {} devices, got {}", devices, rows.size()));
    return false;
  }
  bool is_square = true;
  for (std::size_t i = 0; i < devices; ++i) {
    const ArrayReader row(rows.at(i), "an array of link names");
    if (row.valid() && row.size() != devices) {
      rows.at(i).add(
          fmt::format("expected a column for each of the {} devices, got {}", devices, row.size()));
    }
    is_square = is_square && row.valid() && row.size() == devices;
  }
  return is_square;
}

Eigen::MatrixXi read_matrix(const Field& field, const std::vector<LinkKind>& kinds,
                            std::size_t devices) {
  const ArrayReader rows(field, "an array of rows");
  if (!has_shape(rows, field, devices)) return {};
  const auto size = static_cast<Eigen::Index>(devices);
  Eigen::MatrixXi matrix = Eigen::MatrixXi::Constant(size, size, kNoLink);
  for (std::size_t from = 0; from < devices; ++from) {
    const ArrayReader row(rows.at(from), "an array of link names");
    for (std::size_t to = 0; to < devices; ++to) {
      const std::optional<int> entry = read_matrix_entry(row.at(to), kinds);
      if (from == to && entry && *entry != kNoLink)
        row.at(to).refuse("\"-\" between a device and itself");
      matrix(static_cast<Eigen::Index>(from), static_cast<Eigen::Index>(to)) =
          entry.value_or(kNoLink);
    }
  }
  return matrix;
}

void read_host_path(const Field& field, ServerLinks& links) {
  if (!field.present()) return;
  ObjectReader object(field);
  links.host_path_source = optional_text(object.field("source"));
  links.host_path = read_link(object);
  object.finish();
}

ServerLinks read_server_links(const Field& field, std::size_t devices) {
  ServerLinks links;
  if (!field.present() && devices == 1) return links;
  ObjectReader object(field);
  const std::optional<std::size_t> kind = read_choice(object.field("kind"), {"switch", "matrix"});
  links.source = optional_text(object.field("source"));
  // Without a kind, it is unknown which keys are expected.
  if (!kind) return links;
  if (*kind == 0) {
    links.port = read_link(object);
  } else {
    links.kind = ServerLinks::Kind::Matrix;
    links.kinds = read_kinds(object.field("kinds"), read_link_kind);
    links.matrix = read_matrix(object.field("matrix"), links.kinds, devices);
    read_host_path(object.field("host_path"), links);
  }
  object.finish();
  return links;
}

/// Reads the numbers of devices or NICs; there are none if the key is missing.
std::vector<std::int32_t> read_numbers(const Field& field, const std::string& what) {
  std::vector<std::int32_t> numbers;
  if (!field.present()) return numbers;
  const ArrayReader array(field, "an array of " + what + " numbers");
  if (array.valid() && array.size() == 0) field.refuse("at least one " + what + " number");
  for (std::size_t i = 0; i < array.size(); ++i)
    numbers.push_back(
        static_cast<std::int32_t>(required_integer(array.at(i), {0, kMaxDevices - 1})));
  return numbers;
}

Nic read_nic(const Field& field) {
  ObjectReader object(field);
  Nic nic;
  nic.source = optional_text(object.field("source"));
  nic.link = read_link(object);
  nic.devices = read_numbers(object.field("devices"), "device");
  object.finish();
  return nic;
}

std::vector<Nic> read_nics(const Field& field) {
  std::vector<Nic> nics;
  if (!field.present()) return nics;
  const ArrayReader array(field, "an array of NICs");
  for (std::size_t i = 0; i < array.size(); ++i) nics.push_back(read_nic(array.at(i)));
  return nics;
}

PcieRoot read_pcie_root(const Field& field) {
  ObjectReader object(field);
  PcieRoot root;
  root.source = optional_text(object.field("source"));
  root.link = read_link(object);
  root.devices = read_numbers(object.field("devices"), "device");
  root.nics = read_numbers(object.field("nics"), "NIC");
  object.finish();
  return root;
}

std::vector<PcieRoot> read_pcie_roots(const Field& field) {
  std::vector<PcieRoot> roots;
  if (!field.present()) return roots;
  const ArrayReader array(field, "an array of PCIe roots");
  if (array.valid() && array.size() == 0) field.refuse("at least one PCIe root");
  for (std::size_t i = 0; i < array.size(); ++i) roots.push_back(read_pcie_root(array.at(i)));
  return roots;
}

BusBandwidthTable::Point read_point(const Field& field) {
  ObjectReader object(field);
  BusBandwidthTable::Point point;
  point.size = read_size(object.field("size"), Bytes{1}).value_or(Bytes{1});
  point.bandwidth = read_bandwidth(object.field("bandwidth")).value_or(Bandwidth{1});
  object.finish();
  return point;
}

BusBandwidthTable read_bus_bandwidth_table(const Field& field) {
  ObjectReader object(field);
  BusBandwidthTable table;
  table.source = optional_text(object.field("source"));
  table.servers =
      static_cast<std::int32_t>(optional_integer(object.field("servers"), {1, kMaxDevices}, 1));
  table.devices =
      static_cast<std::int32_t>(required_integer(object.field("devices"), {1, kMaxDevices}));
  const Field points = object.field("points");
  const ArrayReader array(points, "an array of message sizes and their bandwidths");
  if (array.valid() && array.size() == 0) points.refuse("at least one message size");
  for (std::size_t i = 0; i < array.size(); ++i) table.points.push_back(read_point(array.at(i)));
  object.finish();
  return table;
}

std::vector<BusBandwidthTable> read_bus_bandwidth(const Field& field) {
  std::vector<BusBandwidthTable> tables;
  if (!field.present()) return tables;
  const ArrayReader array(field, "an array of tables");
  if (array.valid() && array.size() == 0) field.refuse("at least one table");
  for (std::size_t i = 0; i < array.size(); ++i) {
    tables.push_back(read_bus_bandwidth_table(array.at(i)));
  }
  return tables;
}

/// Reads the name of one of the topology's device kinds.
std::string read_kind_name(const Field& field, const std::vector<DeviceKind>& kinds) {
  const std::optional<std::string> name = read_name(field);
  if (!name) return "";
  const bool is_known = std::any_of(kinds.begin(), kinds.end(),
                                    [&name](const DeviceKind& kind) { return kind.name == *name; });
  if (!is_known) field.refuse("the name of a kind of device in /devices");
  return *name;
}

ServerGroup read_server_group(const Field& field, const std::vector<DeviceKind>& kinds) {
  ObjectReader object(field);
  ServerGroup group;
  group.name = read_name(object.field("name")).value_or("");
  group.count =
      static_cast<std::int32_t>(required_integer(object.field("count"), {1, kMaxDevices}));
  group.device = read_kind_name(object.field("device"), kinds);
  const std::optional<std::int64_t> devices =
      read_integer(object.field("devices"), {1, kMaxDevices});
  group.devices = static_cast<std::int32_t>(devices.value_or(1));
  const Field links = object.field("links");
  if (devices) group.links = read_server_links(links, static_cast<std::size_t>(*devices));
  group.nics = read_nics(object.field("nics"));
  group.pcie_roots = read_pcie_roots(object.field("pcie_roots"));
  group.bus_bandwidth = read_bus_bandwidth(object.field("bus_bandwidth"));
  object.finish();
  return group;
}

std::vector<ServerGroup> read_server_groups(const Field& field,
                                            const std::vector<DeviceKind>& kinds) {
  const ArrayReader array(field, "an array of servers");
  if (array.valid() && array.size() == 0) field.refuse("at least one kind of server");
  std::vector<ServerGroup> groups;
  std::set<std::string> names;
  std::int64_t devices = 0;
  for (std::size_t i = 0; i < array.size(); ++i) {
    groups.push_back(read_server_group(array.at(i), kinds));
    const std::string& name = groups.back().name;
    if (!name.empty() && !names.insert(name).second) {
      ObjectReader object(array.at(i));
      object.field("name").refuse("a server name of its own");
    }
    devices += std::int64_t{groups.back().count} * groups.back().devices;
  }
  if (devices > kMaxDevices)
    field.add(fmt::format("expected at most {} devices, got {}", kMaxDevices, devices));
  return groups;
}

void read_network(const Field& field, TopologyDescription& topology) {
  if (!field.present()) return;
  ObjectReader object(field);
  read_choice(object.field("kind"), {"switch"});
  topology.network_source = optional_text(object.field("source"));
  topology.network = read_link(object);
  object.finish();
}

/// Reads an uplink, which has either a bandwidth or an oversubscription: the ratio of what its
/// members can send together to its bandwidth.
void read_uplink(const Field& field, UplinkGroup& group) {
  ObjectReader object(field);
  const Field bandwidth = object.field("bandwidth");
  const Field oversubscription = object.field("oversubscription");
  if (!oversubscription.present()) {
    group.bandwidth = read_bandwidth(bandwidth).value_or(Bandwidth{1});
  } else {
    group.oversubscription = read_factor(oversubscription, kOversubscription).value_or(kOne);
    if (bandwidth.present()) bandwidth.add("expected either a bandwidth or an oversubscription");
  }
  group.latency = read_duration(object.field("latency")).value_or(Duration{});
  object.finish();
}

/// Reads the racks, where `members` is "servers", or the pods, where it is "racks".
std::vector<UplinkGroup> read_uplink_groups(const Field& field, std::string_view members) {
  std::vector<UplinkGroup> groups;
  if (!field.present()) return groups;
  const ArrayReader array(field, "an array of groups that are alike");
  if (array.valid() && array.size() == 0) field.refuse("at least one group");
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader object(array.at(i));
    UplinkGroup group;
    group.source = optional_text(object.field("source"));
    group.count =
        static_cast<std::int32_t>(required_integer(object.field("count"), {1, kMaxDevices}));
    group.members =
        static_cast<std::int32_t>(required_integer(object.field(members), {1, kMaxDevices}));
    read_uplink(object.field("uplink"), group);
    object.finish();
    groups.push_back(std::move(group));
  }
  return groups;
}

/// Returns the layout of an object that may have a source, whose text of a sentence or two would
/// make a single line too long.
JsonWriter::Layout layout_beside(const std::string& source) {
  return source.empty() ? JsonWriter::Layout::Line : JsonWriter::Layout::Lines;
}

void write_source(JsonWriter& writer, const std::string& source) {
  if (!source.empty()) writer.key("source").text(source);
}

void write_link(JsonWriter& writer, const Link& link) {
  writer.key("bandwidth").text(bandwidth_text(link.bandwidth));
  writer.key("latency").text(duration_text(link.latency));
}

void write_device_kind(JsonWriter& writer, const DeviceKind& kind) {
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("memory").text(size_text(kind.memory));
  if (kind.reserved.count != 0) writer.key("reserved").text(size_text(kind.reserved));
  if (!kind.time_scale.empty()) {
    writer.key("time_scale").open_object(JsonWriter::Layout::Line);
    for (const auto& [device, scale] : kind.time_scale) writer.key(device).raw(factor_text(scale));
    writer.close();
  }
  if (kind.price_per_hour) writer.key("price_per_hour").raw(factor_text(*kind.price_per_hour));
  write_source(writer, kind.source);
  writer.close();
}

void write_matrix(JsonWriter& writer, const ServerLinks& links) {
  writer.key("kinds").open_object(JsonWriter::Layout::Lines);
  for (const LinkKind& kind : links.kinds) {
    writer.key(kind.name).open_object(layout_beside(kind.source));
    write_link(writer, kind.link);
    writer.key("lanes").integer(kind.lanes);
    write_source(writer, kind.source);
    writer.close();
  }
  writer.close();
  writer.key("matrix").open_array(JsonWriter::Layout::Lines);
  for (Eigen::Index from = 0; from < links.matrix.rows(); ++from) {
    writer.open_array(JsonWriter::Layout::Line);
    for (Eigen::Index to = 0; to < links.matrix.cols(); ++to) {
      const int kind = links.matrix(from, to);
      writer.text(kind == kNoLink ? "-" : links.kinds[static_cast<std::size_t>(kind)].name);
    }
    writer.close();
  }
  writer.close();
  if (links.host_path) {
    writer.key("host_path").open_object(layout_beside(links.host_path_source));
    write_link(writer, *links.host_path);
    write_source(writer, links.host_path_source);
    writer.close();
  }
}

void write_server_links(JsonWriter& writer, const ServerLinks& links) {
  if (links.kind == ServerLinks::Kind::Switch) {
    if (links.port == Link{} && links.source.empty()) return;
    writer.key("links").open_object(layout_beside(links.source));
    writer.key("kind").text("switch");
    write_link(writer, links.port);
    write_source(writer, links.source);
  } else {
    writer.key("links").open_object(JsonWriter::Layout::Lines);
    writer.key("kind").text("matrix");
    write_matrix(writer, links);
    write_source(writer, links.source);
  }
  writer.close();
}

void write_numbers(JsonWriter& writer, std::string_view key,
                   const std::vector<std::int32_t>& numbers) {
  if (numbers.empty()) return;
  writer.key(key).open_array(JsonWriter::Layout::Line);
  for (const std::int32_t number : numbers) writer.integer(number);
  writer.close();
}

void write_pcie_roots(JsonWriter& writer, const std::vector<PcieRoot>& roots) {
  if (roots.empty()) return;
  writer.key("pcie_roots").open_array(JsonWriter::Layout::Lines);
  for (const PcieRoot& root : roots) {
    writer.open_object(layout_beside(root.source));
    write_link(writer, root.link);
    write_numbers(writer, "devices", root.devices);
    write_numbers(writer, "nics", root.nics);
    write_source(writer, root.source);
    writer.close();
  }
  writer.close();
}

void write_bus_bandwidth(JsonWriter& writer, const std::vector<BusBandwidthTable>& tables) {
  if (tables.empty()) return;
  writer.key("bus_bandwidth").open_array(JsonWriter::Layout::Lines);
  for (const BusBandwidthTable& table : tables) {
    writer.open_object(JsonWriter::Layout::Lines);
    writer.key("servers").integer(table.servers);
    writer.key("devices").integer(table.devices);
    writer.key("points").open_array(JsonWriter::Layout::Lines);
    for (const BusBandwidthTable::Point& point : table.points) {
      writer.open_object(JsonWriter::Layout::Line);
      writer.key("size").text(size_text(point.size));
      writer.key("bandwidth").text(bandwidth_text(point.bandwidth));
      writer.close();
    }
    writer.close();
    write_source(writer, table.source);
    writer.close();
  }
  writer.close();
}

void write_uplink_groups(JsonWriter& writer, std::string_view key, std::string_view members,
                         const std::vector<UplinkGroup>& groups) {
  if (groups.empty()) return;
  writer.key(key).open_array(JsonWriter::Layout::Lines);
  for (const UplinkGroup& group : groups) {
    writer.open_object(layout_beside(group.source));
    writer.key("count").integer(group.count);
    writer.key(members).integer(group.members);
    writer.key("uplink").open_object(JsonWriter::Layout::Line);
    if (group.bandwidth) {
      writer.key("bandwidth").text(bandwidth_text(*group.bandwidth));
    } else {
      writer.key("oversubscription").raw(factor_text(group.oversubscription));
    }
    writer.key("latency").text(duration_text(group.latency));
    writer.close();
    write_source(writer, group.source);
    writer.close();
  }
  writer.close();
}

void write_server_group(JsonWriter& writer, const ServerGroup& group) {
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("name").text(group.name);
  writer.key("count").integer(group.count);
  writer.key("device").text(group.device);
  writer.key("devices").integer(group.devices);
  write_server_links(writer, group.links);
  if (!group.nics.empty()) {
    writer.key("nics").open_array(JsonWriter::Layout::Lines);
    for (const Nic& nic : group.nics) {
      writer.open_object(layout_beside(nic.source));
      write_link(writer, nic.link);
      write_numbers(writer, "devices", nic.devices);
      write_source(writer, nic.source);
      writer.close();
    }
    writer.close();
  }
  write_pcie_roots(writer, group.pcie_roots);
  write_bus_bandwidth(writer, group.bus_bandwidth);
  writer.close();
}

}  // namespace

TopologyDescription read_topology(const Field& field) {
  ObjectReader object(field);
  TopologyDescription topology;
  if (!check_schema(object, "dapple-topology/1")) return topology;
  topology.name = read_name(object.field("name")).value_or("");
  topology.source = optional_text(object.field("source"));
  if (const Field notes = object.field("notes"); notes.present())
    topology.notes = read_texts(notes);
  topology.devices = read_device_kinds(object.field("devices"));
  topology.servers = read_server_groups(object.field("servers"), topology.devices);
  read_network(object.field("network"), topology);
  topology.racks = read_uplink_groups(object.field("racks"), "servers");
  topology.pods = read_uplink_groups(object.field("pods"), "racks");
  if (const Field slowdown = object.field("overlap_slowdown"); slowdown.present())
    topology.overlap_slowdown = read_factor(slowdown, kSlowdown).value_or(kOne);
  object.finish();
  return topology;
}

void write_topology(JsonWriter& writer, const TopologyDescription& topology) {
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("schema").text("dapple-topology/1");
  writer.key("name").text(topology.name);
  write_source(writer, topology.source);
  if (!topology.notes.empty()) writer.key("notes").texts(topology.notes);
  writer.key("devices").open_object(JsonWriter::Layout::Lines);
  for (const DeviceKind& kind : topology.devices) write_device_kind(writer.key(kind.name), kind);
  writer.close();
  writer.key("servers").open_array(JsonWriter::Layout::Lines);
  for (const ServerGroup& group : topology.servers) write_server_group(writer, group);
  writer.close();
  if (topology.network) {
    writer.key("network").open_object(layout_beside(topology.network_source));
    writer.key("kind").text("switch");
    write_link(writer, *topology.network);
    write_source(writer, topology.network_source);
    writer.close();
  }
  write_uplink_groups(writer, "racks", "servers", topology.racks);
  write_uplink_groups(writer, "pods", "racks", topology.pods);
  if (topology.overlap_slowdown != kOne)
    writer.key("overlap_slowdown").raw(factor_text(topology.overlap_slowdown));
  writer.close();
}

TopologyDescription read_topology(std::string_view text, const std::string& source_name) {
  return read_document<TopologyDescription>(text, source_name,
                                            [](const Field& root) { return read_topology(root); });
}

std::string write_topology(const TopologyDescription& topology) {
  JsonWriter writer;
  write_topology(writer, topology);
  return writer.finish();
}

}  // namespace dapple::io
