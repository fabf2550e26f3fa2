#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <thread>
#include <utility>
#include <variant>

#include "app/commands/baseline_files.h"
#include "app/commands/commands.h"
#include "app/commands/other_scaling.h"
#include "app/commands/progress_line.h"
#include "app/request/for_target.h"
#include "app/request/inputs.h"
#include "app/request/modes.h"
#include "app/request/pins.h"
#include "dapple/cost/compatible.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/optimality.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/search_limits.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/planner/restricted/restricted.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/profile/doubts.h"
#include "dapple/report/summary.h"

namespace dapple::app {
namespace {

constexpr const char* kPlanHelp =
    R"(dapple-plan plan: search the fastest plan that fits memory.

Usage: dapple-plan [plan] --model PROFILE --topo TOPOLOGY [options]

  --model FILE          layer profile; "-" is stdin
  --topo FILE           devices and links; "-" is stdin, of outputs stdout
  --global-batch N      samples per iteration   (default: the profile's)
  --micro-batch N|auto  samples                 (default: auto, every divisor)
  --schedule FAMILY     of "reschedule", or auto: the best     (default: 1f1b)
  --bucket-size SIZE|auto  in which gradients are reduced (default: 25 MiB)
  --optimizer-step at-end|per-bucket  of gradients          (default: at-end)
  --planner exact|dapple  exact proves how far the plan is from the best one,
                        dapple alone is quicker              (default: exact)
  --time-limit SECONDS  then writes the best so far, as does Ctrl-C
  --memory-limit SIZE   what a search keeps, by count      (default: 2 GiB)
  --gap X               a proven gap that is small enough, "1%" (default: 0)
  --pin WHAT            stages=N, replicas=N, recompute=on|off, depths=least,
                        cut=LAYER, join=LAYER (a stage begins there, or not)
  --for TARGET          only plans that "export" can express for it: megatron,
                        deepspeed, torch-python, torch-csv, torchtitan,
                        colossalai, pipedream or sailor
  --contention on|off   transfers share links or not            (default: on)
  --replicas WAY        of a stage: together or independent (default: together)
  --unlimited-memory    plan as if every device had room for everything
  --time-scale X        on the times of devices that state none themselves
  --threads N           (default: all cores; the plan does not depend on it)
  -o, --output FILE     the plan, replaced if there (default: MODEL.plan.json)
  --no-baselines        leave out the comparison with what others would choose;
                        of plans that take equally long another may be chosen
  --write-baselines DIR  their plans, as DIR/NAME.plan.json
  --trace FILE          timeline for chrome://tracing or ui.perfetto.dev
Only for a PipeDream graph as --model, which does not say these:
  --profile-batch N     samples and, with --profile-device D, kind of device
  --optimizer NAME      sgd, momentum, rmsprop or adam  --time-unit s|ms|us|ns
  --batch-scaling proportional|floor       --stash output|X times the output

Example
  dapple-plan --model profiles/bert-48.json --topo topologies/2x8xV100.json \
      --micro-batch 8 -o plan.json --trace trace.json
Exit code 4: no plan fits; the message names the tightest device.
)";

std::vector<command_line::OptionSpec> specs() {
  std::vector<command_line::OptionSpec> all{{.name = "model"},
                                            {.name = "topo"},
                                            {.name = "global-batch"},
                                            {.name = "micro-batch"},
                                            {.name = "schedule"},
                                            {.name = "bucket-size"},
                                            {.name = "optimizer-step"},
                                            {.name = "planner"},
                                            {.name = "time-limit"},
                                            {.name = "memory-limit"},
                                            {.name = "gap"},
                                            {.name = "pin", .repeats = true},
                                            {.name = "for"},
                                            {.name = "contention"},
                                            {.name = "replicas"},
                                            {.name = "unlimited-memory", .takes_value = false},
                                            {.name = "time-scale"},
                                            {.name = "threads"},
                                            {.name = "output", .letter = 'o'},
                                            {.name = "trace"},
                                            {.name = "no-baselines", .takes_value = false},
                                            {.name = "write-baselines"}};
  for (const command_line::OptionSpec& spec : foreign_profile_options()) all.push_back(spec);
  return all;
}

constexpr std::int64_t kMostThreads = 256;

/// Sets the schedule families. 1F1B is the default and is not set explicitly.
void choose_families(const command_line::Options& options, planner::PlannerOptions& planner) {
  std::vector<std::string> names{"1f1b", "auto"};
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (family == ScheduleFamily::OneFOneB || family == ScheduleFamily::Given) continue;
    names.emplace_back(to_string(family));
  }
  const std::string name = options.choice("schedule", names);
  planner.every_family = name == "auto";
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (family != ScheduleFamily::OneFOneB && name == to_string(family)) planner.family = family;
  }
  const bool is_1f1b = !planner.every_family &&
                       is_planned_as_1f1b(planner.family.value_or(ScheduleFamily::OneFOneB));
  if (!is_1f1b && replicas_of(options) == Replicas::Independent) {
    throw command_line::usage_error(
        "--replicas", fmt::format("expected independent with --schedule 1f1b or gpipe only, got it "
                                  "with {}",
                                  name));
  }
  if (!is_1f1b && !planner.every_family && options.has("planner")) {
    throw command_line::usage_error(
        "--planner", fmt::format("expected it with --schedule 1f1b, gpipe or auto only, got it "
                                 "with {}",
                                 name));
  }
}

planner::PlannerOptions planner_options(const command_line::Options& options) {
  planner::PlannerOptions planner;
  if (!options.is_word("micro-batch", "auto")) {
    planner.micro_batch_size = options.positive_integer("micro-batch", kMaxCount);
  }
  choose_families(options, planner);
  if (options.has("bucket-size")) {
    planner.bucket_size =
        options.is_word("bucket-size", "auto") ? std::nullopt : options.size("bucket-size");
  }
  if (options.choice("optimizer-step", {"at-end", "per-bucket"}) == "per-bucket") {
    planner.optimizer = OptimizerTiming::PerBucket;
  }
  if (options.choice("planner", {"exact", "dapple"}) == "dapple") {
    planner.planner = PlannerKind::Dapple;
    if (options.has("gap")) {
      throw command_line::usage_error(
          "--gap", "expected only with --planner exact, as dapple proves no gap");
    }
  }
  planner.memory_limit = memory_limit_of(options);
  planner.target_gap = options.fraction("gap").value_or(Factor{});
  planner.contention = contention_of(options);
  planner.replicas = replicas_of(options);
  planner.ignore_memory = options.has("unlimited-memory");
  planner.baselines = !options.has("no-baselines");
  if (!planner.baselines && options.has("write-baselines")) {
    throw command_line::usage_error("--write-baselines", "expected no --no-baselines beside it");
  }
  const std::int64_t cores = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  planner.threads = static_cast<int>(
      options.positive_integer("threads", kMostThreads).value_or(std::min(cores, kMostThreads)));
  return planner;
}

void print_infeasible(command_line::Console& console, const planner::Infeasible& infeasible,
                      const ModelProfile& profile, const TopologyDescription& topology) {
  const std::string error = report::paint("error:", report::Ink::Bad, console.err_style);
  const std::string subject =
      fmt::format("{} on {}", printable(profile.name), printable(topology.name));
  if (infeasible.stopped) {
    console.err << fmt::format("{} no plan was found before the search was stopped: {}\n", error,
                               subject);
    return;
  }
  const bool is_pinned = !infeasible.pins.empty();
  console.err << fmt::format("{} no plan {}{}: {}\n", error,
                             infeasible.conflict.empty() ? "fits" : "was found",
                             is_pinned ? " with what is pinned" : "", subject);
  if (is_pinned) {
    console.err << fmt::format("  pinned           {}\n",
                               printable(fmt::format("{}", fmt::join(infeasible.pins, ", "))));
  }
  if (infeasible.conflict.empty()) {
    console.err << fmt::format(
        "  tightest device  {} needs {}, has {}: {} ({} bytes) are missing\n"
        "  closest plan     {}\n",
        printable(infeasible.device), report::show(infeasible.needed, infeasible.limit),
        report::show(infeasible.limit), report::show(infeasible.missing(), infeasible.limit),
        infeasible.missing().count, printable(infeasible.closest_plan));
  } else {
    console.err << fmt::format("  because          {}\n", printable(infeasible.conflict));
  }
  console.err << fmt::format("  cheapest remedy  {}\n", printable(infeasible.remedy));
}

struct Inputs {
  ModelProfile profile;
  TopologyDescription topology;
  std::vector<std::string> warnings;
};

Inputs load_inputs(const command_line::Options& options, const std::string& model,
                   const std::string& topo) {
  command_line::check_inputs({{"--model", model}, {"--topo", topo}});
  interop::ImportedProfile imported = load_profile(model, options);
  Inputs inputs{.profile = std::move(imported.profile),
                .topology = load_topology(topo),
                .warnings = std::move(imported.warnings)};
  settle_device(inputs.profile, inputs.topology, inputs.warnings);
  apply_time_scale(options, inputs.profile, inputs.topology);
  spdlog::info("model {}: {} layers, measured on {}", printable(inputs.profile.name),
               inputs.profile.layers.size(), printable(inputs.profile.device));
  return inputs;
}

/// Logs the limits of an exact search, all of them counted.
void log_limits(const planner::PlannerOptions& options) {
  const bool is_searched =
      options.every_family || is_planned_as_1f1b(options.family.value_or(ScheduleFamily::OneFOneB));
  if (options.planner != PlannerKind::Exact || !is_searched) return;
  constexpr planner::SearchLimits limits = planner::kSearchLimits;
  spdlog::info(
      "a search of 1f1b plans may take {} actions of simulations and {} stages tried ({} "
      "where not all placements are tried), and keep {} partial plans and {}",
      limits.actions, limits.states, limits.states_of_some_placements, limits.partial_plans,
      report::show(options.memory_limit));
  spdlog::info(
      "then {} actions to refine depths, {} for threshold accepting from a plan, {} to "
      "exhaust depths",
      limits.refinement, limits.threshold_accepting, limits.exhaustion);
}

struct SearchEnd {
  std::variant<planner::MadePlan, planner::Infeasible> result;
  StopReason stop_reason = StopReason::None;
  std::optional<OtherScaling> scaling = std::nullopt;
};

/// Searches a plan. Takes `progress` by value, as signals are caught only while it exists.
SearchEnd search(const Inputs& inputs, const Topology& topology,
                 const planner::PlannerOptions& planner,
                 const std::optional<planner::PlanRestriction>& restriction,
                 ProgressLine progress) {
  const planner::PlanningContext context{inputs.profile, topology, planner, &progress};
  auto result = restriction ? planner::make_restricted_plan(context, *restriction)
                            : planner::make_plan(context);
  SearchEnd end{.result = std::move(result), .stop_reason = progress.stop_reason()};
  if (const auto* made = std::get_if<planner::MadePlan>(&end.result)) {
    end.scaling = in_other_scaling(made->document, topology);
    if (end.scaling && !progress.should_stop()) {
      search_in_other_scaling(*end.scaling, context, restriction);
    }
  }
  return end;
}

/// Adds to the request what the planner does not know. Doubts about an imported profile are left
/// out, as every plan file states them as warnings.
void complete_request(PlanRequest& request, const Inputs& inputs, StopReason reason,
                      std::optional<Duration> time_limit) {
  request.input_warnings = inputs.warnings;
  const std::vector<std::string> doubts = doubts_about(inputs.profile);
  std::erase_if(request.input_warnings, [&](const std::string& warning) {
    return std::find(doubts.begin(), doubts.end(), warning) != doubts.end();
  });
  request.stopped_by = reason;
  if (reason == StopReason::TimeLimit) request.time_limit = time_limit;
}

struct Finding {
  const planner::MadePlan& made;
  const std::optional<OtherScaling>& scaling;
  const Topology& topology;
};

/// Writes all files together, then the summary.
int write_outputs(const Finding& finding, const command_line::Options& options,
                  command_line::Console& console) {
  const PlanDocument& document = finding.made.document;
  const Topology& topology = finding.topology;
  const Timeline& timeline = finding.made.evaluation.timeline;
  const std::string output =
      options.text("output").value_or(command_line::default_output(document.profile, ".plan.json"));
  const auto trace = options.text("trace");
  const bool out_is_taken = output == "-" || trace == "-";
  const auto [stream, style] = console.words(out_is_taken);
  command_line::Results results(console);
  if (const auto directory = options.text("write-baselines")) {
    write_baselines(*directory, finding.made, topology, results);
  }
  results.add(output, io::write_plan(document));
  if (trace) results.add(*trace, io::write_trace(timeline, topology));
  results.commit();
  stream << report::write_summary(document, timeline, topology, style)
         << report::other_replicas_text(document.prediction, finding.made.evaluation.otherwise)
         << (finding.scaling ? text_of(*finding.scaling, style) : std::string());
  command_line::print_warnings_if_quiet(console, document.warnings);
  if (trace && *trace != "-") stream << "trace written to " << printable(*trace) << '\n';
  if (output != "-") stream << "plan written to " << printable(output) << '\n';
  return command_line::kDone;
}

int run_plan(const command_line::Options& options, command_line::Console& console) {
  options.require_options_only("--model FILE --topo FILE");
  const std::string model = options.required("model", "a layer profile");
  const std::string topo = options.required("topo", "a topology");
  planner::PlannerOptions planner = planner_options(options);
  log_limits(planner);
  const auto time_limit = options.positive_seconds("time-limit");
  const Inputs inputs = load_inputs(options, model, topo);
  const auto global_batch = options.positive_integer("global-batch", kMaxCount);
  if (!global_batch && !inputs.profile.global_batch_size) {
    throw command_line::usage_error(
        "--global-batch", "expected the samples of one iteration, got nothing, and " +
                              command_line::source_name(model) + " does not say it either");
  }
  planner.global_batch_size =
      global_batch ? *global_batch : inputs.profile.global_batch_size.value_or(1);

  std::vector<command_line::NamedPath> outputs{
      {"--output", options.text("output").value_or(
                       command_line::default_output(inputs.profile, ".plan.json"))}};
  if (const auto trace = options.text("trace")) outputs.push_back({"--trace", *trace});
  const auto baselines = options.text("write-baselines");
  if (baselines) add_baseline_outputs(*baselines, outputs);
  check_outputs(outputs, {{"--model", model}, {"--topo", topo}});

  const Topology topology{inputs.topology, command_line::source_name(topo)};
  std::vector<Violation> faults =
      check_compatible(inputs.profile, topology, planner.global_batch_size);
  if (!faults.empty())
    throw Error{ErrorKind::BadInput, command_line::source_name(model), std::move(faults)};
  planner.pins = parse_pins(options.texts("pin"), inputs.profile, topology);
  const bool is_1f1b = !planner.every_family && planner.family.value_or(ScheduleFamily::OneFOneB) ==
                                                    ScheduleFamily::OneFOneB;
  if (planner.pins.least_depths && !is_1f1b) {
    throw command_line::usage_error(
        "--pin",
        "expected depths=least with --schedule 1f1b only, got " + *options.text("schedule"));
  }
  const auto restriction = restriction_of(options, planner, inputs.profile);
  SearchEnd end = search(inputs, topology, planner, restriction, ProgressLine{console, time_limit});
  if (const auto* infeasible = std::get_if<planner::Infeasible>(&end.result)) {
    print_infeasible(console, *infeasible, inputs.profile, inputs.topology);
    return command_line::kInfeasible;
  }
  planner::MadePlan made = std::get<planner::MadePlan>(std::move(end.result));
  made.document.tool = kTool;
  const bool is_done = is_search_done(made.document) && !made.lacks_baselines;
  complete_request(*made.document.request, inputs, is_done ? StopReason::None : end.stop_reason,
                   time_limit);
  made.document.warnings = planner::warnings_of(made.document, topology);
  return write_outputs({made, end.scaling, topology}, options, console);
}

}  // namespace

command_line::Command plan_command() {
  return {.name = "plan", .help = kPlanHelp, .options = specs(), .run = run_plan};
}

}  // namespace dapple::app
