#include "entries.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "dapple/core/text_source.h"
#include "dapple/estimate/estimate.h"
#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/interop/profiles/configuration.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/interop/profiles/pipedream.h"
#include "dapple/interop/topologies/foreign_topology.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/documents/proof_document.h"
#include "dapple/io/documents/specification.h"
#include "dapple/io/documents/trade_off_document.h"
#include "dapple/io/gpus/gpus_document.h"
#include "dapple/nn/model.h"
#include "dapple/plan/validate.h"

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
  const std::string written = io::write_profile(profile);
  const ModelProfile again = io::read_profile(written, kSource);
  check(io::write_profile(again) == written, "a written profile reads as another one");
  check(io::hash_of(again) == io::hash_of(profile), "a written profile hashes differently");
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
                         {{2000}, {0}, {0}, {0}, {0}, {0}, {0}, {0}},
                         false,
                         Bytes{12},
                         true}};
  document.search.planner = "dapple";
  document.search.searched = {"stages"};
  document.warnings = {"made up"};
  return document;
}

const std::string kNoHash(64, '0');

/// A micro-batch through two of the cards.
std::string example_timeline() {
  return R"({"schema": "dapple-timeline/1", "plan_sha256": ")" + kNoHash + R"(",
 "origin": "measured", "clock": "wall",
 "actions": [
  {"device": "node0:0", "stream": "compute", "action": "0F0", "start_ns": 5, "end_ns": 100},
  {"device": "node0:0", "stream": "send_forward", "action": "0SEND_F0", "start_ns": 100,
   "end_ns": 130, "bytes": 10},
  {"device": "node0:1", "stream": "compute", "action": "1F0", "start_ns": 130, "end_ns": 200},
  {"device": "node0:1", "stream": "compute", "action": "1B0", "start_ns": 200, "end_ns": 300}],
 "memory": [{"device": "node0:0", "fixed_bytes": 1, "bytes_per_micro_batch": 2,
  "recompute_bytes": 0, "peak_bytes": 3, "limit_bytes": 9}]})";
}

std::string example_proof() {
  return R"({"schema": "dapple-proof/1", "tool": "fuzz", "plan_sha256": ")" + kNoHash + R"(",
 "lower_bound_ns": 150, "problems": [
  {"parallelism": {"tensor": 2, "sequence": true}, "replicas": 2, "recompute": false,
   "micro_batch_size": 4, "bucket_bytes": 100, "method": "nodes",
   "nodes": [[2, 1, 1, 2, 0, 1, 30, 31, 32, 33, 34, 35, 36],
             [1, 3, -1, 0, 0, 1, 30, 31, 32, 33, 34, 35, 36]]},
  {"micro_batch_size": 2, "bucket_bytes": 100, "method": "diagram", "width": 4},
  {"micro_batch_size": 1, "bucket_bytes": 100, "method": "search"}]})";
}

std::string example_trade_off() {
  PlanDocument document = example_document();
  document.request.emplace();
  TradeOffDocument trade_off{.tool = "dapple-plan 0.1.0",
                             .request = {.slack = Factor{kOne.billionths / 10}},
                             .searches = {{.topology = example_topology(), .lower_bound = {12}},
                                          {.document = std::move(document)}},
                             .front = {1},
                             .chosen = 1,
                             .claim = {.price = 0.5}};
  return io::write_trade_off(trade_off);
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

constexpr const char* kComputation =
    R"({"layertype_0_bsz1_seq512": 2.0, "layertype_0_bsz4_seq512": 1.5,
 "layertype_other_bsz1_seq512": 5.5, "layertype_other_bsz4_seq512": 3.5})";
constexpr const char* kMemory = R"({
 "layertype_0": {"512": {"parameter_size": 24.5, "tp_activation_per_bsz_dict": {"1": 40.25}}},
 "other_memory_pp_on_first": {"512": {"model_states": {"1": 128}, "activation": {"1": 6}}},
 "other_memory_pp_on_last": {"512": {"model_states": {"1": 130}, "activation": {"1": 24}}}})";

std::string example_model() {
  return R"({"mbsInBatch": 8, "nodes": [
 {"id": 1, "name": "Block", "TMPCs": {"1": [
  {"id": "vanilla", "timePerSample": 0.003, "parameterSize": 4000.0, "memoryUsageA": 64.0,
   "memoryUsageB": 8000.0, "syncTimeFw": {}, "syncTimeBw": {"2": 0.0}},
  {"id": "activation recomp", "timePerSample": 0.004, "parameterSize": 4000.0,
   "memoryUsageA": 8.0, "memoryUsageB": 8000.0, "syncTimeFw": {}, "syncTimeBw": {"2": 0.0}}]}},
 {"id": 2, "name": "Block", "TMPCs": {"1": [
  {"id": "vanilla", "timePerSample": 0.003, "parameterSize": 4000.0, "memoryUsageA": 64.0,
   "memoryUsageB": 8000.0, "syncTimeFw": {"1": 0.0}, "syncTimeBw": {}}]}}],
 "edges": [{"sourceId": 1, "destId": 2, "communicationCost": 512.0}]})";
}

/// For a model of these layers on two servers of two cards each.
constexpr const char* kPlanLayers[] = {"embedding", "block.0", "block.1", "output"};
constexpr const char* kModules =
    "--parallelism.pipeline_parallel_degree 2 --parallelism.module_fqns_per_model_part "
    R"('[["embedding"], ["block.0"], ["block.1"], ["output"]]')";
constexpr const char* kOrder =
    "0F0,0F1,2F0,2F1,,,2B0,2B1,,0B0,0B1\n,1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1\n";
constexpr const char* kAnswer =
    "node9 -- output -- forward_compute_time=1, backward_compute_time=2, activation_size=0, "
    "parameter_size=4 -- stage_id=1\n"
    "node0 -- block -- forward_compute_time=1, backward_compute_time=2, activation_size=8, "
    "parameter_size=4 -- stage_id=0\n"
    "node1 -- block -- forward_compute_time=1, backward_compute_time=2, activation_size=8, "
    "parameter_size=4 -- stage_id=1\n"
    "node7 -- embedding -- forward_compute_time=1, backward_compute_time=2, activation_size=8, "
    "parameter_size=4 -- stage_id=0\n"
    "\tnode7 -- node0\n\tnode0 -- node1\n\tnode1 -- node9\n";

std::string example_foreign_plan() {
  return "PIPELINE_ARGS=(\n  --pipeline-model-parallel-size 2 # ranks\n"
         "  --pipeline-model-parallel-layout \"Et*1|(t)*1,L\" \\\n"
         "  --num-layers=2 --micro-batch-size 1 --global-batch-size 8\n)\n";
}

ModelProfile plan_profile() {
  ModelProfile profile = example_profile();
  const Layer layer = profile.layers[1];
  profile.layers.clear();
  for (const char* name : kPlanLayers) {
    Layer& added = profile.layers.emplace_back(layer);
    added.name = name;
    added.inputs.clear();
    const std::size_t position = profile.layers.size() - 1;
    if (position > 0) added.inputs.push_back(index_at<LayerIndex>(position - 1));
  }
  profile.global_batch_size = 8;
  return profile;
}

TopologyDescription plan_topology() {
  TopologyDescription topology = example_topology();
  DeviceKind kind = topology.devices.front();
  ServerGroup group = topology.servers.front();
  group.devices = 2;
  group.nics.emplace_back().link = group.links.port;
  topology.devices.clear();
  topology.servers.clear();
  for (const auto& [server, device] : {std::pair{"mesh", "A"}, std::pair{"box", "B"}}) {
    kind.name = device;
    group.name = server;
    group.device = device;
    topology.devices.push_back(kind);
    topology.servers.push_back(group);
  }
  topology.network = group.links.port;
  return topology;
}

/// The files that a text may need beside it, of which it replaces the one of its kind.
std::vector<interop::ForeignPlanFile> plan_files(std::string_view text,
                                                 interop::PlanFormat format) {
  std::vector<interop::ForeignPlanFile> files{{std::string(text), kSource, format}};
  const bool is_script = text.find("module_fqns_per_model_part") != std::string_view::npos;
  if (format == interop::PlanFormat::Torch)
    files.push_back({is_script ? kOrder : kModules, "beside", format});
  const bool has_parts =
      text.find("parts") != std::string_view::npos || text.find("PARTS") != std::string_view::npos;
  if (format == interop::PlanFormat::Deepspeed && !has_parts) {
    files.push_back({R"({"parts": [0, 2, 4]})", "beside", format});
  }
  const bool is_beside =
      format == interop::PlanFormat::Pipedream && text.find("stage_id") == std::string_view::npos;
  if (is_beside) files.push_back({kAnswer, "beside", format});
  return files;
}

/// All that a model's format asks for, and nothing else.
interop::ForeignProfileOptions model_options(interop::ModelFormat format) {
  interop::ForeignProfileOptions options;
  options.optimizer = "adam";
  options.global_batch = 64;
  const bool is_graph = format == interop::ModelFormat::PipedreamGraph;
  if (is_graph) options.profile_batch = 32;
  if (format == interop::ModelFormat::Sailor) options.device = "GH-96";
  if (is_graph || format == interop::ModelFormat::Sailor) return options;
  options.backward_ratio = Factor{2'000'000'000};
  if (format == interop::ModelFormat::Piper) return options;
  options.output = Bytes{100};
  if (format == interop::ModelFormat::Metis) options.stash = kOne;
  if (format == interop::ModelFormat::Galvatron) options.layers = 2;
  return options;
}

/// All that files leave out, so that only what they say can be refused.
interop::ForeignTopologyOptions foreign_options(interop::TopologyFormat format) {
  interop::ForeignTopologyOptions options;
  options.device = "card";
  options.memory = Bytes{std::int64_t{16} << 30};
  if (format == interop::TopologyFormat::AstraSim) return options;
  options.nvlink = Bandwidth{20'000'000'000};
  options.pcie = Bandwidth{12'000'000'000};
  options.socket = Bandwidth{10'000'000'000};
  options.nic = Bandwidth{1'000'000'000};
  if (format != interop::TopologyFormat::Slurm) return options;
  options.rack_oversubscription = kOne;
  options.pod_oversubscription = kOne;
  return options;
}

}  // namespace

bool exercise_profile(std::string_view text) {
  ModelProfile profile;
  if (!accepted([&] { profile = io::read_profile(text, kSource); })) return false;
  check(io::document_kind(text) == "profile", "a profile of another kind");
  check_profile_survives(profile);
  return true;
}

bool exercise_specification(std::string_view text) {
  io::Specification specification;
  if (!accepted([&] { specification = io::read_specification(text, kSource); })) return false;
  const std::string written = io::write_profile(specification.profile);
  const io::Specification again = io::read_specification(written, kSource);
  check(io::write_profile(again.profile) == written,
        "a written specification reads as another one");
  accepted([&] { nn::make_model(specification.profile, specification.operations, kSource); });
  return true;
}

bool exercise_topology(std::string_view text) {
  TopologyDescription description;
  if (!accepted([&] { description = io::read_topology(text, kSource); })) return false;
  check(io::document_kind(text) == "topology", "a topology of another kind");
  const std::string written = io::write_topology(description);
  const TopologyDescription again = io::read_topology(written, kSource);
  check(io::write_topology(again) == written, "a written topology reads as another one");
  check(io::hash_of(again) == io::hash_of(description), "a written topology hashes differently");
  const bool expands = accepted([&] { check_routes(Topology(description)); });
  check(accepted([&] { Topology{again}; }) == expands, "a written topology expands differently");
  return true;
}

/// Whether a plan is sound. An unsound one has no schedule, so no digest, and cannot be written.
bool is_sound(const PlanDocument& document) {
  bool sound = false;
  accepted([&] {
    const Topology topology(document.topology);
    const auto layers = static_cast<std::int32_t>(document.profile.layers.size());
    sound = validate(document.plan, layers, topology).empty();
  });
  return sound;
}

bool exercise_plan(std::string_view text) {
  PlanDocument document;
  if (!accepted([&] { document = io::read_plan(text, kSource); })) return false;
  check(io::document_kind(text) == "plan", "a plan of another kind");
  if (!is_sound(document)) return true;
  const std::string written = io::write_plan(document);
  const PlanDocument again = io::read_plan(written, kSource);
  check(io::write_plan(again) == written, "a written plan reads as another one");
  check(io::hash_of(again) == io::hash_of(document), "a written plan hashes differently");
  return true;
}

bool exercise_timeline(std::string_view text) {
  const Topology topology(example_topology());
  Timeline timeline;
  if (!accepted([&] { timeline = io::read_timeline(text, kSource, topology, kNoHash); }))
    return false;
  const std::string written = whole_text(io::write_timeline(timeline, topology, kNoHash));
  const Timeline again = io::read_timeline(written, kSource, topology, kNoHash);
  check(whole_text(io::write_timeline(again, topology, kNoHash)) == written,
        "a written timeline reads as another one");
  return true;
}

bool exercise_proof(std::string_view text) {
  ProofDocument proof;
  if (!accepted([&] { proof = io::read_proof(text, kSource, kNoHash); })) return false;
  const std::string written = whole_text(io::write_proof(proof, "fuzz"));
  check(io::read_proof(written, kSource, kNoHash) == proof, "a written proof reads as another one");
  return true;
}

bool exercise_trade_off(std::string_view text) {
  TradeOffDocument document;
  if (!accepted([&] { document = io::read_trade_off(text, kSource); })) return false;
  for (const TradeOffSearch& search : document.searches) {
    if (search.document && !is_sound(*search.document)) return true;
  }
  const std::string written = io::write_trade_off(document);
  check(io::write_trade_off(io::read_trade_off(written, kSource)) == written,
        "a written trade-off reads as another one");
  return true;
}

bool exercise_pipedream(std::string_view text) {
  interop::ForeignProfileOptions options;
  options.profile_batch = 32;
  options.optimizer = "momentum";
  options.global_batch = 64;
  interop::is_pipedream_graph(text);
  interop::ImportedProfile imported;
  if (!accepted([&] { imported = interop::import_pipedream_graph(text, kSource, options); }))
    return false;
  check_profile_survives(imported.profile);
  return true;
}

bool knows_foreign(std::string_view text) {
  return interop::detect_topology_format(text).has_value();
}

bool knows_foreign_model(std::string_view text) {
  return interop::detect_model_format(text).has_value();
}

bool knows_foreign_plan(std::string_view text) {
  return interop::detect_plan_format(text).has_value();
}

bool exercise_foreign(std::string_view text) {
  const std::optional<interop::TopologyFormat> format = interop::detect_topology_format(text);
  if (!format) return false;
  std::vector<interop::ForeignFile> files{{std::string(text), kSource, *format}};
  if (*format == interop::TopologyFormat::Slurm || *format == interop::TopologyFormat::NcclTests) {
    files.push_back({example_table(), "table", interop::TopologyFormat::NvidiaSmi});
  }
  interop::ImportedTopology imported;
  try {
    imported = interop::import_topology(files, foreign_options(*format));
  } catch (const Error& error) {
    // Several hosts want figures that one does not: those of the network between them.
    if (error.kind() != ErrorKind::Usage) check_refusal(error);
    return false;
  }
  const std::string written = io::write_topology(imported.description);
  const TopologyDescription again = io::read_topology(written, kSource);
  check(io::write_topology(again) == written, "an imported topology reads as another one");
  check_routes(Topology(again));
  return true;
}

/// The two files of Sailor's planner for a model of four layers, as the samples have it.
std::string sailor_file(std::string_view before, std::string_view layer, std::string_view behind) {
  std::string text(before);
  for (const char* number : {"0", "1", "2", "3"}) {
    text += text.size() == before.size() ? "\"" : ", \"";
    text += number + std::string("\": ") + std::string(layer);
  }
  return text + std::string(behind);
}

std::string sailor_times() {
  return sailor_file(R"({"OPT-small": {"GH-96": {"1": {"1": {)", "[0.1, 0.2, 0.3]", "}}}}}");
}

std::string sailor_sizes() {
  return sailor_file(
      R"({"OPT-small": {"1": {)",
      R"({"params_bytes": 4, "act_output_bytes": 4, "act_input_bytes": 4, "act_mem_bytes": 4})",
      "}}}");
}

bool exercise_foreign_model(std::string_view text) {
  const std::optional<interop::ModelFormat> format = interop::detect_model_format(text);
  if (!format) return false;
  std::vector<interop::ForeignModelFile> files{
      {std::string(text), "DeviceType.card_tp1_bs1.json", *format}};
  if (*format == interop::ModelFormat::Galvatron) {
    const bool is_computation = text.find("_bsz") != std::string_view::npos &&
                                text.find("parameter_size") == std::string_view::npos;
    files.push_back({is_computation ? kMemory : kComputation, "beside", *format});
  }
  if (*format == interop::ModelFormat::Sailor &&
      text.find("layer_kinds") == std::string_view::npos) {
    const bool is_sizes = text.find("act_mem") != std::string_view::npos;
    files.push_back({is_sizes ? sailor_times() : sailor_sizes(), "beside", *format});
  }
  interop::ImportedProfile imported;
  try {
    imported = interop::import_model(files, model_options(*format));
  } catch (const Error& error) {
    // Which of several devices is meant, or a time that only one variant would tell, is asked for.
    if (error.kind() != ErrorKind::Usage) check_refusal(error);
    return false;
  }
  if (imported.profile.device.empty()) imported.profile.device = "card";
  check_profile_survives(imported.profile);
  return true;
}

bool exercise_foreign_plan(std::string_view text) {
  const std::optional<interop::PlanFormat> format = interop::detect_plan_format(text);
  if (!format) return false;
  static const ModelProfile profile = plan_profile();
  static const Topology topology(plan_topology());
  interop::ForeignPlanOptions options;
  options.global_batch = 8;
  const bool is_nanotron = *format == interop::PlanFormat::Nanotron;
  if (is_nanotron) options.global_batch.reset();
  const bool is_layout = is_nanotron || *format == interop::PlanFormat::Layout;
  const bool says_samples =
      is_layout || *format == interop::PlanFormat::Torch || *format == interop::PlanFormat::Sailor;
  if (!says_samples) options.micro_batch = 2;
  if (*format == interop::PlanFormat::Pipedream) {
    if (text.find("stage_id") != std::string_view::npos) options.replicas = {2, 1};
  } else if (!is_layout && *format != interop::PlanFormat::Sailor) {
    options.replicas = {1};
  }
  interop::ImportedPlan imported;
  try {
    imported = interop::import_plan(plan_files(text, *format), {profile, topology}, options);
  } catch (const Error& error) {
    // A degree, or replicas of more stages than there are numbers, are asked for.
    if (error.kind() != ErrorKind::Usage) check_refusal(error);
    return false;
  }
  const auto layers = static_cast<std::int32_t>(imported.profile.layers.size());
  check(validate(imported.plan, layers, topology).empty(), "an imported plan is not sound");
  check(!io::schedule_digest(imported.plan, topology).empty(), "an imported plan has no schedule");
  return true;
}

bool exercise_configuration(std::string_view text) {
  estimate::Architecture model;
  if (!accepted([&] { model = interop::read_configuration(text, kSource); })) return false;
  // A mutation may ask for more layers than there is time for.
  constexpr std::int64_t kMostBlocks = 30;
  std::int64_t blocks = 0;
  for (const auto* const runs : {&model.encoder, &model.blocks}) {
    for (const estimate::BlockRun& run : *runs) blocks += run.count;
  }
  check(estimate::parameter_count(model) >= estimate::expert_parameter_count(model),
        "experts have more parameters than the model");
  if (blocks > kMostBlocks) return true;
  static const estimate::GpuTable kTable = io::shipped_gpus();
  const estimate::Gpu& gpu = kTable.gpus.front();
  estimate::EstimateOptions options{.precision = estimate::Precision::Fp16,
                                    .max_tensor = 2,
                                    .max_experts = 2,
                                    .recomputations = {kWholeLayer}};
  options.sequence = model.embedding.patches > 0 ? 0 : 64;
  if (!estimate::option_faults(model, gpu, options).empty()) return true;
  const std::string written = io::write_profile(
      estimate::estimate_profile(model, gpu, kTable.calibration_of(gpu), options));
  accepted([&] { check_profile_survives(io::read_profile(written, kSource)); });
  return true;
}

bool exercise_gpus(std::string_view text) {
  return accepted([&] { io::read_gpus(text, kSource); });
}

std::string example_for(std::string_view entry) {
  if (entry == "profile") return io::write_profile(example_profile());
  if (entry == "specification") return io::write_profile(example_specification());
  if (entry == "topology") return io::write_topology(example_topology());
  if (entry == "plan") return io::write_plan(example_document());
  if (entry == "timeline") return example_timeline();
  if (entry == "proof") return example_proof();
  if (entry == "trade_off") return example_trade_off();
  if (entry == "foreign") return example_table();
  if (entry == "foreign_model") return example_model();
  if (entry == "foreign_plan") return example_foreign_plan();
  if (entry == "configuration") {
    return R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100})";
  }
  if (entry == "gpus") {
    return R"({"schema": "dapple-gpus/1",
        "calibrations": [{"name": "c", "matrix": 0.5, "attention": 0.5, "memory": 0.5, "source": "made up"}],
        "gpus": [{"name": "g", "memory": "1 GiB", "memory_bandwidth": "1 GB/s",
                  "peak": {"bf16": "1 TFLOP/s"}, "source": "made up"}]})";
  }
  check(entry == "pipedream", "an entry without an example");
  return example_graph();
}

}  // namespace dapple::fuzz
