#include "interop/topologies/astra_network.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <utility>

#include "dapple/core/decimal.h"
#include "interop/text/foreign_text.h"
#include "interop/text/yaml_text.h"

namespace dapple::interop {
namespace {

constexpr std::size_t kMostDimensions = 16;
constexpr std::int64_t kMostDevices = 65'536;
constexpr std::int64_t kMostServerDevices = 256;

enum class Shape { Ring, FullyConnected, Switch };

struct Dimension {
  Shape shape = Shape::Switch;
  std::int32_t count = 1;
  Bandwidth bandwidth;
  Duration latency;
};

std::int64_t line_of(const YAML::Node& node) {
  return node.Mark().line + 1;
}

Bandwidth together(std::int64_t devices, Bandwidth of_each) {
  const Wide all = Wide{devices} * of_each.bytes_per_second;
  return {static_cast<std::int64_t>(std::min<Wide>(all, kMaxCount))};
}

class NetworkReader {
 public:
  NetworkReader(const ForeignFile& file, ImportNotes& notes) : file_(file), notes_(notes) {}
  TopologyDescription run();

 private:
  void fail(std::int64_t line, std::string message) {
    faults_.push_back({line, std::move(message)});
  }
  void check_keys(const YAML::Node& document);
  std::vector<YAML::Node> list_of(const YAML::Node& document, const char* key);
  void read_dimensions(const YAML::Node& document);
  std::optional<Shape> read_shape(const YAML::Node& node);
  std::int64_t read_figure(const YAML::Node& node, const char* what, std::int64_t scale,
                           std::int64_t least);
  std::size_t server_dimensions() const;
  ServerGroup server();
  void add_matrix(ServerGroup& group, std::size_t dimensions);
  void add_network(TopologyDescription& description, std::size_t first);

  const ForeignFile& file_;
  ImportNotes& notes_;
  std::vector<LineFault> faults_;
  std::vector<Dimension> dimensions_;
};

std::vector<YAML::Node> NetworkReader::list_of(const YAML::Node& document, const char* key) {
  const YAML::Node list = document[key];
  if (!list || !list.IsSequence() || list.size() == 0 || list.size() > kMostDimensions) {
    fail(list ? line_of(list) : 0,
         fmt::format("expected {}: with a list of 1 to {} dimensions", key, kMostDimensions));
    return {};
  }
  return {list.begin(), list.end()};
}

std::optional<Shape> NetworkReader::read_shape(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (text == "Ring") return Shape::Ring;
  if (text == "FullyConnected") return Shape::FullyConnected;
  if (text == "Switch") return Shape::Switch;
  fail(line_of(node),
       fmt::format("topology: expected Ring, FullyConnected or Switch, got '{}'", shown(text)));
  return std::nullopt;
}

std::int64_t NetworkReader::read_figure(const YAML::Node& node, const char* what,
                                        std::int64_t scale, std::int64_t least) {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  const RoundedCount figure = scaled_up(text, scale);
  if (figure.fault == DecimalFault::None && figure.count >= least) return figure.count;
  fail(line_of(node), fmt::format("{}: expected a number, {}, got '{}'", what,
                                  least > 0 ? "above zero" : "0 or more", shown(text)));
  return least;
}

void NetworkReader::read_dimensions(const YAML::Node& document) {
  const std::vector<YAML::Node> shapes = list_of(document, "topology");
  const std::vector<YAML::Node> counts = list_of(document, "npus_count");
  const std::vector<YAML::Node> bandwidths = list_of(document, "bandwidth");
  const std::vector<YAML::Node> latencies = list_of(document, "latency");
  if (!faults_.empty()) return;
  if (counts.size() != shapes.size() || bandwidths.size() != shapes.size() ||
      latencies.size() != shapes.size()) {
    fail(0, fmt::format("expected lists of one length, got {} of topology, {} of npus_count, {} of "
                        "bandwidth, {} of latency",
                        shapes.size(), counts.size(), bandwidths.size(), latencies.size()));
    return;
  }
  std::int64_t devices = 1;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Dimension dimension;
    dimension.shape = read_shape(shapes[i]).value_or(Shape::Switch);
    const std::string text = counts[i].IsScalar() ? counts[i].Scalar() : "";
    const std::optional<std::int32_t> count = parse_count(text);
    if (!count || *count < 1 || *count > kMostDevices) {
      fail(line_of(counts[i]), fmt::format("npus_count: expected a number from 1 to {}, got '{}'",
                                           kMostDevices, shown(text)));
    }
    dimension.count = count.value_or(1);
    dimension.bandwidth = {read_figure(bandwidths[i], "bandwidth in GB/s", 1'000'000'000, 1)};
    dimension.latency = {read_figure(latencies[i], "latency in ns", 1, 0)};
    if (dimension.shape == Shape::Switch) {
      dimension.latency = {read_figure(latencies[i], "latency in ns", 2, 0)};
    }
    devices = std::min(devices * std::clamp<std::int64_t>(dimension.count, 1, kMostDevices),
                       kMostDevices + 1);
    dimensions_.push_back(dimension);
  }
  if (devices > kMostDevices) {
    fail(0, fmt::format("expected at most {} devices, got more", kMostDevices));
  }
}

/// Returns the number of dimensions that form a server.
std::size_t NetworkReader::server_dimensions() const {
  std::size_t count = 0;
  while (count < dimensions_.size() && dimensions_[count].shape != Shape::Switch) ++count;
  return std::max<std::size_t>(count, 1);
}

void NetworkReader::add_matrix(ServerGroup& group, std::size_t dimensions) {
  ServerLinks& links = group.links;
  links.kind = ServerLinks::Kind::Matrix;
  links.matrix = Eigen::MatrixXi::Constant(group.devices, group.devices, kNoLink);
  Link host_path{dimensions_.front().bandwidth, Duration{0}};
  std::int32_t stride = 1;
  std::int64_t linked = 0;
  for (std::size_t d = 0; d < dimensions; ++d) {
    const Dimension& dimension = dimensions_[d];
    links.kinds.push_back({.name = fmt::format("dimension{}", d),
                           .source = base_name(file_.name),
                           .link = {dimension.bandwidth, dimension.latency}});
    for (std::int32_t from = 0; from < group.devices; ++from) {
      const std::int32_t at = from / stride % dimension.count;
      for (std::int32_t to = 0; to < dimension.count; ++to) {
        const std::int32_t apart = std::abs(at - to);
        const bool neighbours = apart == 1 || apart == dimension.count - 1;
        if (at == to || (dimension.shape == Shape::Ring && !neighbours)) continue;
        links.matrix(from, from + (to - at) * stride) = static_cast<int>(d);
        ++linked;
      }
    }
    host_path.bandwidth = std::min(host_path.bandwidth, dimension.bandwidth);
    const std::int32_t hops = dimension.shape == Shape::Ring ? dimension.count / 2
                              : dimension.count > 1          ? 1
                                                             : 0;
    host_path.latency += hops * dimension.latency;
    stride *= dimension.count;
  }
  if (linked == std::int64_t{group.devices} * (group.devices - 1)) return;
  links.host_path = host_path;
  links.host_path_source =
      "devices without a link: the slowest link, and all hops of the longest "
      "way";
  notes_.warn(
      fmt::format("{}: devices without a link of their own reach each other over others, "
                  "which a topology does not have; a host path of {} stands for that",
                  file_.name, gigabytes(host_path.bandwidth)));
}

ServerGroup NetworkReader::server() {
  const std::size_t dimensions = server_dimensions();
  std::int64_t devices = 1;
  for (std::size_t d = 0; d < dimensions; ++d) devices *= dimensions_[d].count;
  ServerGroup group;
  group.name = "node";
  const Dimension& first = dimensions_.front();
  if (first.shape != Shape::Switch && devices > kMostServerDevices) {
    fail(0, fmt::format("expected at most {} devices without a switch between them, got {}",
                        kMostServerDevices, devices));
    return group;
  }
  group.devices = static_cast<std::int32_t>(devices);
  if (devices == 1) return group;
  group.links.source = base_name(file_.name);
  if (first.shape == Shape::Switch) {
    group.links.port = {first.bandwidth, first.latency};
  } else {
    add_matrix(group, dimensions);
  }
  return group;
}

/// Adds the dimensions from `first` on. Every device has a port on each further switch: on the
/// first one, this is a NIC per device; on the others, an uplink with the bandwidth of all devices
/// below it together.
void NetworkReader::add_network(TopologyDescription& description, std::size_t first) {
  for (std::size_t d = first; d < dimensions_.size(); ++d) {
    if (dimensions_[d].shape == Shape::Switch) continue;
    fail(0,
         "expected a switch in every dimension behind a server's, got a Ring or FullyConnected "
         "one, which servers or racks cannot have");
    return;
  }
  if (dimensions_.size() > first + 3) {
    fail(0, fmt::format("expected at most three dimensions between servers (a rack's switch, a "
                        "pod's, and one of pods), got {}",
                        dimensions_.size() - first));
    return;
  }
  if (dimensions_.size() == first) return;
  ServerGroup& group = description.servers.front();
  const Dimension& network = dimensions_[first];
  group.count = network.count;
  for (std::int32_t device = 0; device < group.devices; ++device) {
    group.nics.push_back({.source = base_name(file_.name),
                          .link = {network.bandwidth, Duration{0}},
                          .devices = {device}});
  }
  description.network = Link{network.bandwidth, network.latency};
  description.network_source = base_name(file_.name);
  std::int64_t devices = std::int64_t{group.devices} * network.count;
  for (std::size_t d = first + 1; d < dimensions_.size(); ++d) {
    const Dimension& tier = dimensions_[d];
    const bool is_rack = d == first + 1;
    const std::int32_t count =
        is_rack && d + 1 < dimensions_.size() ? tier.count * dimensions_[d + 1].count : tier.count;
    // A message passes two uplinks, one on the way up and one on the way down.
    UplinkGroup uplink{.source = base_name(file_.name),
                       .count = count,
                       .members = dimensions_[d - 1].count,
                       .bandwidth = together(devices, tier.bandwidth),
                       .oversubscription = kOne,
                       .latency = {(tier.latency.ns + 1) / 2}};
    (is_rack ? description.racks : description.pods).push_back(uplink);
    group.count *= tier.count;
    devices *= tier.count;
  }
}

/// Refuses repeated keys: the parser uses one of the values, and the author may have meant the
/// other.
void NetworkReader::check_keys(const YAML::Node& document) {
  std::set<std::string> keys;
  for (const auto& entry : document) {
    if (!entry.first.IsScalar() || keys.insert(entry.first.Scalar()).second) continue;
    fail(line_of(entry.first),
         fmt::format("expected each key once, got {} again", shown(entry.first.Scalar())));
  }
}

TopologyDescription NetworkReader::run() {
  const YAML::Node document = parse_yaml(file_.text, file_.name);
  if (!document.IsMap()) fail(0, "expected topology:, npus_count:, bandwidth: and latency:");
  if (document.IsMap()) check_keys(document);
  if (faults_.empty()) read_dimensions(document);
  throw_faults(std::exchange(faults_, {}), file_.name);
  TopologyDescription description;
  description.source = fmt::format("ASTRA-sim network ({})", base_name(file_.name));
  description.servers = {server()};
  if (faults_.empty()) add_network(description, server_dimensions());
  throw_faults(std::move(faults_), file_.name);
  return description;
}

}  // namespace

bool is_astra_network(std::string_view text) {
  const std::vector<std::string_view> lines = split(text, "\n");
  return std::any_of(lines.begin(), lines.end(),
                     [](std::string_view line) { return begins_with(trim(line), "npus_count"); });
}

TopologyDescription read_astra_network(const ForeignFile& file, ImportNotes& notes) {
  return NetworkReader(file, notes).run();
}

}  // namespace dapple::interop
