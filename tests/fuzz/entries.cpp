#include "entries.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "dapple/interop/foreign_topology.h"
#include "dapple/interop/pipedream.h"
#include "dapple/io/documents.h"
#include "dapple/io/specification.h"
#include "dapple/nn/model.h"

namespace dapple::fuzz {

namespace {

const std::string kSource = "fuzz";

void check_refusal(const Error& error) {
  check(error.kind() == ErrorKind::BadInput, "bytes were refused as something else than bad input");
  check(!error.violations().empty(), "an error without a violation");
  for (const Violation& violation : error.violations()) {
    check(!violation.message.empty(), "a violation without a message");
  }
}

/// Runs `read`, which may only refuse by Error(BadInput); true if it did not.
template <class Read>
bool accepted(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    check_refusal(error);
    return false;
  }
  return true;
}

void check_profile_survives(const ModelProfile& profile) {
  const std::string written = write_profile(profile);
  const ModelProfile again = read_profile(written, kSource);
  check(write_profile(again) == written, "a written profile reads as another one");
  check(hash_of(again) == hash_of(profile), "a written profile hashes differently");
}

/// Every route must lead somewhere: a Topology refuses devices that cannot reach each other.
void check_routes(const Topology& topology) {
  // All pairs of the first few devices: their number is only bounded by what the reader allows.
  const std::int32_t count = std::min(topology.device_count(), 9);
  for (DeviceIndex from{0}; from.value < count; from = from.next()) {
    check(topology.memory_limit(from).count >= 0, "a device with less than no memory");
    for (DeviceIndex to{0}; to.value < count; to = to.next()) {
      if (from == to) continue;
      const Route route = topology.route(from, to);
      // PCIe roots, a NIC, uplinks of rack and pod, and back down.
      check(!route.ports.empty() && route.ports.size() <= 10, "a route of no port, or of many");
      check(route.bandwidth.bytes_per_second > 0, "a route without bandwidth");
    }
  }
}

ModelProfile example_profile() {
  Layer layer;
  layer.name = "first";
  layer.parameters = Bytes{1000};
  Measurement measurement;
  measurement.forward = Duration{100};
  measurement.backward = Duration{200};
  measurement.output = Bytes{10};
  measurement.stash = Bytes{30};
  layer.measurements = {measurement};

  ModelProfile profile;
  profile.name = "two-layers";
  profile.source = "made up";
  profile.device = "card";
  profile.global_batch_size = 4;
  profile.batch_scaling = BatchScaling::Proportional;
  profile.optimizer.name = "momentum";
  profile.optimizer.state_bytes_per_parameter_byte = kOne;
  profile.layers = {layer, layer};
  profile.layers[1].name = "second";
  profile.layers[1].inputs = {LayerIndex{0}};
  return profile;
}

ModelProfile example_specification() {
  ModelProfile profile = example_profile();
  for (Layer& layer : profile.layers) layer.measurements.clear();
  profile.layers[0].parameters = Bytes{4 * (6 * 3 + 3)};
  profile.layers[0].operation = R"({"inputs": 6, "kind": "linear", "outputs": 3})";
  profile.layers[1].parameters = Bytes{0};
  profile.layers[1].operation = R"({"classes": 3, "kind": "softmax_cross_entropy"})";
  return profile;
}

TopologyDescription example_topology() {
  TopologyDescription topology;
  topology.name = "three-cards";
  DeviceKind card;
  card.name = "card";
  card.memory = Bytes{1'000'000};
  topology.devices = {card};
  ServerGroup server;
  server.name = "node";
  server.device = "card";
  server.devices = 3;
  server.links.port = Link{Bandwidth{1'000'000'000}, Duration{5000}};
  topology.servers = {server};
  return topology;
}

/// The first layer on two of the cards, the second on the third.
PlanDocument example_document() {
  PlanDocument document;
  document.tool = "dapple-plan 0.1.0";
  document.profile = example_profile();
  document.topology = example_topology();
  document.plan.global_batch_size = 4;
  document.plan.micro_batch_size = 2;
  document.plan.num_micro_batches = 2;
  document.plan.warmup_depths = {2, 1};
  StagePlan first;
  first.layers = LayerRange{0, 1};
  first.devices = {DeviceIndex{0}, DeviceIndex{1}};
  first.gradient_buckets = {Bytes{1000}};
  StagePlan second;
  second.layers = LayerRange{1, 2};
  second.devices = {DeviceIndex{2}};
  document.plan.stages = {first, second};
  document.prediction.iteration = Duration{1500};
  document.prediction.stages.resize(2);
  for (const int device : {0, 1, 2}) {
    document.prediction.devices.push_back(
        {DeviceIndex{device}, Bytes{4000}, Bytes{1'000'000}, 0.5});
  }
  document.baselines = {{"data-parallel",
                         "3, 2 of 4",
                         Duration{2000},
                         {{2000}, {0}, {0}, {0}, {0}, {0}, {0}},
                         false,
                         Bytes{12},
                         true}};
  document.search.planner = "dapple";
  document.search.searched = {"stages"};
  document.warnings = {"made up"};
  return document;
}

std::string example_graph() {
  return "node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, "
         "activation_size=0.0, parameter_size=0.000\n"
         "node2 -- Conv2d(3, 64) -- forward_compute_time=2.126, backward_compute_time=4.25, "
         "activation_size=1644167168.0, parameter_size=7168.000\n"
         "node3 -- Split() -- forward_compute_time=1,backward_compute_time=2, "
         "activation_size=[100.0; 28.0], parameter_size=0.000 -- stage_id=0\n"
         "node4 -- __getitem__(1) -- forward_compute_time=0.000, backward_compute_time=0.000, "
         "activation_size=28.0, parameter_size=0.000\n"
         "node9 -- Add -- forward_compute_time=0.500, backward_compute_time=0.250, "
         "activation_size=64, parameter_size=12.000\n"
         "\tnode1 -- node2\n\tnode2 -- node3\n \tnode3 -- node4\n\tnode2 -- node9\n"
         "  node3 -- node9";
}

std::string example_table() {
  return "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\tX\tNV2\tPIX\t0-3\nGPU1\tNV2\tX\tSYS\t4-7\n"
         "NIC0\tPIX\tSYS\tX\n\nNIC Legend:\n\n  NIC0: mlx5_0\n";
}

/// All that files leave out, so that only what they say can be refused.
ForeignTopologyOptions foreign_options(TopologyFormat format) {
  ForeignTopologyOptions options;
  options.device = "card";
  options.memory = Bytes{std::int64_t{16} << 30};
  if (format == TopologyFormat::AstraSim) return options;
  options.nvlink = Bandwidth{20'000'000'000};
  options.pcie = Bandwidth{12'000'000'000};
  options.socket = Bandwidth{10'000'000'000};
  options.nic = Bandwidth{1'000'000'000};
  if (format != TopologyFormat::Slurm) return options;
  options.rack_oversubscription = kOne;
  options.pod_oversubscription = kOne;
  return options;
}

}  // namespace

bool exercise_profile(std::string_view text) {
  ModelProfile profile;
  if (!accepted([&] { profile = read_profile(text, kSource); })) return false;
  check(document_kind(text) == "profile", "a profile of another kind");
  check_profile_survives(profile);
  return true;
}

bool exercise_specification(std::string_view text) {
  Specification specification;
  if (!accepted([&] { specification = read_specification(text, kSource); })) return false;
  const std::string written = write_profile(specification.profile);
  const Specification again = read_specification(written, kSource);
  check(write_profile(again.profile) == written, "a written specification reads as another one");
  accepted([&] { nn::make_model(specification.profile, specification.operations, kSource); });
  return true;
}

bool exercise_topology(std::string_view text) {
  TopologyDescription description;
  if (!accepted([&] { description = read_topology(text, kSource); })) return false;
  check(document_kind(text) == "topology", "a topology of another kind");
  const std::string written = write_topology(description);
  const TopologyDescription again = read_topology(written, kSource);
  check(write_topology(again) == written, "a written topology reads as another one");
  check(hash_of(again) == hash_of(description), "a written topology hashes differently");
  const bool expands = accepted([&] { check_routes(Topology(description)); });
  check(accepted([&] { Topology{again}; }) == expands, "a written topology expands differently");
  return true;
}

bool exercise_plan(std::string_view text) {
  PlanDocument document;
  if (!accepted([&] { document = read_plan(text, kSource); })) return false;
  check(document_kind(text) == "plan", "a plan of another kind");
  bool sound = false;
  accepted([&] {
    const Topology topology(document.topology);
    const auto layers = static_cast<std::int32_t>(document.profile.layers.size());
    sound = validate(document.plan, layers, topology).empty();
  });
  // An unsound plan has no schedule, so no digest, and cannot be written.
  if (!sound) return true;
  const std::string written = write_plan(document);
  const PlanDocument again = read_plan(written, kSource);
  check(write_plan(again) == written, "a written plan reads as another one");
  check(hash_of(again) == hash_of(document), "a written plan hashes differently");
  return true;
}

bool exercise_pipedream(std::string_view text) {
  ForeignProfileOptions options;
  options.profile_batch = 32;
  options.optimizer = "momentum";
  options.global_batch = 64;
  is_pipedream_graph(text);
  ImportedProfile imported;
  if (!accepted([&] { imported = import_pipedream_graph(text, kSource, options); })) return false;
  check_profile_survives(imported.profile);
  return true;
}

bool exercise_foreign(std::string_view text) {
  const std::optional<TopologyFormat> format = detect_topology_format(text);
  if (!format) return false;
  std::vector<ForeignFile> files{{std::string(text), kSource, *format}};
  if (*format == TopologyFormat::Slurm || *format == TopologyFormat::NcclTests) {
    files.push_back({example_table(), "table", TopologyFormat::NvidiaSmi});
  }
  ImportedTopology imported;
  try {
    imported = import_topology(files, foreign_options(*format));
  } catch (const Error& error) {
    // Several hosts want figures that one does not: those of the network between them.
    if (error.kind() != ErrorKind::Usage) check_refusal(error);
    return false;
  }
  const std::string written = write_topology(imported.description);
  const TopologyDescription again = read_topology(written, kSource);
  check(write_topology(again) == written, "an imported topology reads as another one");
  check_routes(Topology(again));
  return true;
}

std::string example_for(std::string_view entry) {
  if (entry == "profile") return write_profile(example_profile());
  if (entry == "specification") return write_profile(example_specification());
  if (entry == "topology") return write_topology(example_topology());
  if (entry == "plan") return write_plan(example_document());
  if (entry == "foreign") return example_table();
  check(entry == "pipedream", "an entry without an example");
  return example_graph();
}

}  // namespace dapple::fuzz
