#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/import/import_parts.h"
#include "app/request/file_kinds.h"
#include "app/request/groups.h"
#include "app/request/inputs.h"
#include "app/request/modes.h"
#include "app/request/runtimes.h"
#include "dapple/cost/memory.h"
#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/interop/plans/stated_parallelism.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/report/summary.h"

namespace dapple::app {
namespace {

/// Expands "node0:0-3" to node0:0 to node0:3; adds a text without a range unchanged.
void add_devices(const std::string& text, std::vector<std::string>& devices) {
  constexpr std::size_t kMostDigits = 6;
  constexpr int kMostDevices = 65'536;
  const std::size_t colon = text.rfind(':');
  const std::size_t dash = text.find('-', colon == std::string::npos ? text.size() : colon);
  const auto number = [&](std::size_t begin, std::size_t end) {
    const std::string digits = text.substr(begin, end - begin);
    const bool is_number = !digits.empty() && digits.size() <= kMostDigits &&
                           digits.find_first_not_of("0123456789") == std::string::npos;
    return is_number ? std::stoi(digits) : -1;
  };
  if (dash == std::string::npos) {
    devices.push_back(text);
    return;
  }
  const int first = number(colon + 1, dash);
  const int last = number(dash + 1, text.size());
  if (first < 0 || last < first || last - first >= kMostDevices) {
    throw command_line::usage_error("--devices",
                                    fmt::format("expected devices as node0:0 or node0:0-3, got "
                                                "\"{}\"",
                                                printable(text)));
  }
  for (int device = first; device <= last; ++device) {
    devices.push_back(fmt::format("{}{}", text.substr(0, colon + 1), device));
  }
}

/// Returns the names of groups of so many devices, given the names of all their devices in order.
/// Throws Error(Usage) if these do not form whole groups.
std::vector<std::string> names_of_groups(const std::vector<std::string>& devices,
                                         const Topology& topology, std::size_t size) {
  std::map<std::vector<std::string>, std::string> groups;
  for (std::int32_t d = 0; d < topology.device_count(); ++d) {
    std::vector<std::string> members;
    for (std::size_t i = 0; i < size; ++i) {
      const GroupMember member =
          topology.group_member(DeviceIndex{d}, static_cast<std::int64_t>(i));
      members.push_back(fmt::format("{}:{}", member.server, member.number));
    }
    groups.emplace(std::move(members), topology.device(DeviceIndex{d}).name);
  }
  std::vector<std::string> names;
  for (std::size_t first = 0; first < devices.size(); first += size) {
    const auto begin = devices.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end =
        devices.begin() + static_cast<std::ptrdiff_t>(std::min(first + size, devices.size()));
    const auto found = groups.find(std::vector<std::string>(begin, end));
    if (found == groups.end()) {
      throw command_line::usage_error(
          "--devices",
          fmt::format("expected whole groups of {} devices, as {}, got {} first of one", size,
                      topology.device(DeviceIndex{0}).name, printable(devices[first])));
    }
    names.push_back(found->second);
  }
  return names;
}

std::vector<std::int64_t> replicas_option(const command_line::Options& options) {
  std::vector<std::int64_t> replicas;
  const std::optional<std::string> text = options.text("replicas");
  if (!text) return replicas;
  constexpr std::size_t kMostDigits = 5;
  for (const std::string& part : command_line::parts_of_list(*text)) {
    const bool is_number = !part.empty() && part.size() <= kMostDigits &&
                           part.find_first_not_of("0123456789") == std::string::npos &&
                           part.find_first_not_of('0') != std::string::npos;
    if (!is_number) {
      throw command_line::usage_error("--replicas",
                                      fmt::format("expected a number, or one for each stage as "
                                                  "12,1,1, got \"{}\"",
                                                  printable(*text)));
    }
    replicas.push_back(std::stoll(part));
  }
  return replicas;
}

interop::ForeignPlanOptions plan_options_of(const command_line::Options& options) {
  interop::ForeignPlanOptions plan;
  plan.global_batch = options.positive_integer("global-batch", kMaxCount);
  plan.micro_batch = options.positive_integer("micro-batch", kMaxCount);
  plan.replicas = replicas_option(options);
  if (const auto devices = options.text("devices")) {
    for (const std::string& part : command_line::parts_of_list(*devices))
      add_devices(part, plan.devices);
  }
  plan.tensor_parallel = options.positive_integer("tensor-parallel", 1024);
  if (options.has("replication")) {
    const bool deals = options.choice("replication") == "deal";
    plan.replication = deals ? Replication::Deal : Replication::Split;
  }
  return plan;
}

struct ImportedPlanRequest {
  std::vector<std::string> paths;
  /// A layout in words or Megatron-LM's options, in place of files.
  std::optional<std::string> layout;
  /// Empty if the files tell it.
  std::optional<interop::PlanFormat> format;
  std::string model;
  std::string topology;
  interop::ForeignPlanOptions plan;
  std::optional<Factor> time_scale;
  Contention contention = Contention::SharedWithCollectives;
  std::optional<Runtime> runtime;
  bool ignores_memory = false;
  std::optional<std::string> output;
};

ImportedPlanRequest imported_plan_request(const command_line::Options& options) {
  if (options.positional().empty() && !options.has("layout")) {
    throw command_line::usage_error("import plan",
                                    "expected one file or more, or --layout, got none");
  }
  ImportedPlanRequest request{
      .paths = options.positional(),
      .layout = options.text("layout"),
      .format = forced_format(options, interop::plan_formats()),
      .model = options.required("model", "the profile that the plan is for"),
      .topology = options.required("topo", "a topology"),
      .plan = plan_options_of(options),
      .time_scale = options.positive_factor("time-scale"),
      .contention = contention_of(options).value_or(Contention::SharedWithCollectives),
      .runtime = runtime_of(options.text("runtime")),
      .ignores_memory = options.has("unlimited-memory"),
      .output = options.text("output")};
  if (request.layout && (!request.paths.empty() || options.has("format"))) {
    throw command_line::usage_error("--layout",
                                    "replaces files and --format, and cannot be used with them");
  }
  return request;
}

std::vector<interop::ForeignPlanFile> read_files(const ImportedPlanRequest& request) {
  if (request.layout) {
    // Megatron-LM's options begin with dashes.
    const bool is_in_words = request.layout->find("--") == std::string::npos;
    const interop::PlanFormat format =
        is_in_words ? interop::PlanFormat::Layout : interop::PlanFormat::Megatron;
    return {{.text = *request.layout, .name = "--layout", .format = format}};
  }
  return read_foreign<interop::ForeignPlanFile>(request.paths, request.format,
                                                {.formats = interop::plan_formats(),
                                                 .detect = interop::detect_plan_format,
                                                 .what = "a plan of"});
}

/// Returns the document of an imported plan, which has no search.
PlanDocument document_of(interop::ImportedPlan imported, PlanDocument document) {
  const Parallelism parallelism = document.plan.parallelism;
  document.tool = kTool;
  document.profile = std::move(imported.profile);
  document.plan = std::move(imported.plan);
  document.plan.parallelism = parallelism;
  document.search.planner = kImportPlanner;
  document.search.outside =
      outside_space(document.original_profile(), sharding_of(document.plan.parallelism),
                    !document.plan.stage_forms.empty());
  document.search.cut = {std::string{kCutOfImport}};
  document.warnings = std::move(imported.warnings);
  return document;
}

/// Returns the faults; consecutive devices of a stage with the same shortage are one fault.
std::vector<Violation> memory_faults(const std::vector<MemoryShortage>& shortages,
                                     const Topology& topology) {
  std::vector<Violation> faults;
  for (std::size_t i = 0; i < shortages.size();) {
    const MemoryShortage& first = shortages[i];
    std::vector<DeviceIndex> devices;
    for (; i < shortages.size(); ++i) {
      const MemoryShortage& each = shortages[i];
      if (each.stage != first.stage || each.needed != first.needed || each.limit != first.limit) {
        break;
      }
      devices.push_back(each.device);
    }
    const bool is_one = devices.size() == 1;
    faults.push_back(
        {fmt::format("stage {}", first.stage.value),
         fmt::format("memory exceeded: device{} {} need{} {}, ha{} {}", is_one ? "" : "s",
                     report::show_devices(devices, topology), is_one ? "s" : "",
                     report::show(first.needed), is_one ? "s" : "ve", report::show(first.limit))});
  }
  return faults;
}

/// Throws Error(BadInput) if the plan does not fit memory; with `ignores_memory` adds a warning
/// instead.
void check_memory(const planner::Evaluation& evaluation, const Topology& topology,
                  bool ignores_memory, const std::string& source,
                  std::vector<std::string>& warnings) {
  const std::size_t count = evaluation.shortages.size();
  if (count == 0) return;
  if (!ignores_memory) {
    std::vector<Violation> faults = memory_faults(evaluation.shortages, topology);
    faults.push_back({"", "expected a plan that fits; --unlimited-memory takes it all the same"});
    throw Error{ErrorKind::BadInput, source, std::move(faults)};
  }
  warnings.push_back(fmt::format("the plan does not fit: {} device{} short of memory", count,
                                 count == 1 ? " is" : "s are"));
}

int run(const command_line::Options& options, command_line::Console& console) {
  const ImportedPlanRequest request = imported_plan_request(options);
  ModelProfile profile = load_own_profile(request.model);
  TopologyDescription description = load_topology(request.topology);
  apply_time_scale(request.time_scale, profile, description);
  if (request.runtime) {
    apply(*request.runtime, profile);
    reserve(*request.runtime, description);
  }
  const std::string topology_source = command_line::source_name(request.topology);
  const Topology original{description, topology_source};
  const std::string output =
      request.output.value_or(command_line::default_output(profile, ".imported.plan.json"));
  std::vector<command_line::NamedPath> inputs = command_line::numbered_paths(request.paths);
  inputs.push_back({"--model", request.model});
  inputs.push_back({"--topo", request.topology});
  check_outputs({{"--output", output}}, inputs);

  const std::vector<interop::ForeignPlanFile> files = read_files(request);
  const std::string& source = files.front().name;
  PlanDocument document;
  set_inputs(document, profile, original,
             interop::find_parallelism(
                 interop::stated_in(files, request.plan, profile, original.device_count()), profile,
                 source),
             source);
  const Topology topology{document.topology};
  interop::ForeignPlanOptions plan_options = request.plan;
  if (const auto size = static_cast<std::size_t>(document.topology.group_size); size > 1) {
    plan_options.devices = names_of_groups(plan_options.devices, topology, size);
  }
  document = document_of(
      interop::import_plan(
          files, {document.profile, topology, document.plan.parallelism.recomputes}, plan_options),
      document);
  SimulationMode mode{request.contention};
  if (request.runtime) {
    run_on(*request.runtime, document);
    mode.transfers = transfers_of(*request.runtime, document.plan.family);
    check_mode(document.plan, mode, source);
  }
  check_costs(document, topology, source, topology_source);
  const planner::Evaluation evaluation =
      planner::evaluate(document.plan, document.profile, topology, mode);
  check_memory(evaluation, topology, request.ignores_memory, source, document.warnings);
  document.prediction = evaluation.prediction;
  for (std::string& warning : planner::warnings_about(document, topology)) {
    document.warnings.push_back(std::move(warning));
  }
  command_line::write_result(console, output, io::write_plan(document));
  const auto [stream, style] = console.words(output == "-");
  stream << report::write_summary(document, evaluation.timeline, topology, style)
         << report::other_replicas_text(document.prediction, evaluation.otherwise);
  command_line::print_warnings_if_quiet(console, document.warnings);
  if (output != "-") stream << "plan written to " << printable(output) << '\n';
  return command_line::kDone;
}

/// Returns the options for what the files do not say of the plan.
std::vector<command_line::OptionSpec> missing_choices() {
  return {{.name = "global-batch",
           .value = "N",
           .text = "Use N samples per iteration.",
           .default_value = "the file's, else the profile's"},
          {.name = "micro-batch",
           .value = "N",
           .text = "Use micro-batches of N samples.",
           .default_value = "the file's",
           .details = "These are the samples of all replicas of a stage together."},
          {.name = "replicas",
           .value = "N|N,N,...",
           .text = "Use N replicas of all stages, or of each.",
           .default_value = "the file's"},
          {.name = "devices",
           .value = "D,D-D,...",
           .text = "Place the ranks on these devices, as node0:0-3,node1:0.",
           .details = "The default is what comments of the file say, or else the order of the "
                      "topology."},
          {.name = "replication",
           .value = "WAY",
           .choices = {"split", "deal"},
           .text = "Let replicas {} micro-batches.",
           .details = "Replicas split a micro-batch among them, or are dealt whole ones in turn. "
                      "The default is split, but deal for plans of PipeDream."},
          {.name = "tensor-parallel",
           .value = "N",
           .text = "Take N GPUs as one device of the topology.",
           .default_value = "1"}};
}

std::vector<command_line::OptionSection> imported_plan_options() {
  return {{"",
           {model_option("Read the layer profile that the plan is for."),
            topology_option("Read the devices and links."),
            command_line::output_option("Write the plan.", "./MODEL.imported.plan.json"),
            format_option(interop::plan_formats()),
            {.name = "layout",
             .value = "TEXT",
             .text = "Read a layout or Megatron-LM's options from TEXT, not a file.",
             .details = "Examples are \"pp=2,dp=4,mbs=1\", as for simulate, and "
                        "\"--pipeline-model-parallel-size 2 ...\"."}}},
          {"What the files do not say", missing_choices()},
          {"Costs",
           {time_scale_option(),
            contention_option("on"),
            runtime_option("Simulate how this runtime runs the plan."),
            {.name = "unlimited-memory", .text = "Write a plan that does not fit memory, too."}}}};
}

}  // namespace

command_line::Command import_plan_command() {
  return {
      .description =
          {.name = "plan",
           .summary = "import other tools' plans, and cost, simulate and check them",
           .usage = {"dapple-plan import plan FILE... --model PROFILE --topo TOPOLOGY [options]"},
           .about = "A FILE is of PipeDream, Megatron-LM, DeepSpeed, PyTorch, torchtitan, nanotron "
                    "or Sailor; layouts in words can be files, too.",
           .details = {"The files are an answer of PipeDream (gpus=N.txt) with what its optimizer "
                       "printed or a conf file; a script with Megatron-LM's options and layout; a "
                       "program or JSON file with DeepSpeed's parts, and its settings; "
                       "torchtitan's options with the modules of each stage, and PyTorch's CSV "
                       "schedule; or a plan of Sailor."},
           .takes_files = true,
           .options = imported_plan_options(),
           .examples = {"dapple-plan import plan --layout '--pipeline-model-parallel-size 2",
                        "  --pipeline-model-parallel-layout \"Et*24|t*24L\" "
                        "--micro-batch-size 1' \\",
                        "  --replicas 8 --model profiles/bert-48.json --topo "
                        "topologies/2x8xV100.json"}},
      .run = run};
}

}  // namespace dapple::app
