#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/json_result.h"
#include "app/commands/other_scaling.h"
#include "app/commands/simulate/layouts.h"
#include "app/request/inputs.h"
#include "app/request/modes.h"
#include "app/request/runtimes.h"
#include "dapple/core/parallel.h"
#include "dapple/cost/memory.h"
#include "dapple/io/documents/documents.h"
#include "dapple/planner/baselines/steady_state.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/candidates/jitter.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/report/summary.h"

namespace dapple::app {
namespace {

struct SimulateRequest {
  /// The plan's file; empty with a layout or a table of layouts.
  std::string plan = {};
  std::optional<std::string> layout;
  std::optional<std::string> layouts;
  std::optional<std::int64_t> global_batch;
  std::optional<Factor> time_scale;
  bool is_csv = false;
  std::optional<std::string> model;
  std::optional<std::string> topology;
  bool recost = false;
  std::optional<Contention> contention;
  std::optional<Replicas> replicas;
  std::optional<Runtime> runtime;
  std::optional<std::string> trace;
  std::optional<std::string> timeline;
  bool is_asynchronous = false;
  /// How far speeds of devices deviate.
  std::optional<JitterRequest> jitter;
  bool is_json = false;
};

/// Throws Error(Usage) for options that do not go together.
void check_combinations(const SimulateRequest& request, const command_line::Options& options) {
  const bool has_layouts = request.layout || request.layouts;
  const std::size_t plans =
      options.positional().size() + (request.layout ? 1 : 0) + (request.layouts ? 1 : 0);
  if (plans != 1) {
    throw command_line::usage_error(
        "simulate", fmt::format("expected one plan file, --layout or --layouts, got {}", plans));
  }
  if (has_layouts && (!request.model || !request.topology)) {
    throw command_line::usage_error(request.layout ? "--layout" : "--layouts",
                                    "needs --model and --topo");
  }
  const auto require = [&](bool is_allowed, const char* option, const char* needs) {
    if (options.has(option) && !is_allowed) {
      throw command_line::usage_error(fmt::format("--{}", option), needs);
    }
  };
  for (const char* option : {"global-batch", "time-scale"}) {
    require(has_layouts, option, "needs --layout or --layouts, got neither");
  }
  require(request.layouts.has_value(), "csv", "needs --layouts, got none");
  require(!has_layouts, "recost", "needs a plan file, got layouts");
  require(!has_layouts, "timeline",
          "needs a plan file, of which the timeline has the hash; import plan --layout makes one");
  for (const char* option : {"trace", "asynchronous", "jitter", "json"}) {
    require(!request.layouts, option, "needs one plan, got --layouts");
  }
  require(!request.is_asynchronous, "json", "has no place for --asynchronous, got both");
  require(request.model || request.topology || request.runtime, "recost",
          "needs --model, --topo or --runtime, got none");
  require(has_layouts || request.recost, "runtime", "needs a layout or --recost, got neither");
}

SimulateRequest simulate_request(const command_line::Options& options) {
  SimulateRequest request{.layout = options.text("layout"),
                          .layouts = options.text("layouts"),
                          .global_batch = options.positive_integer("global-batch", kMaxCount),
                          .time_scale = options.positive_factor("time-scale"),
                          .is_csv = options.has("csv"),
                          .model = options.text("model"),
                          .topology = options.text("topo"),
                          .recost = options.has("recost"),
                          .contention = contention_of(options),
                          .replicas = replicas_of(options),
                          .runtime = runtime_of(options.text("runtime")),
                          .trace = options.text("trace"),
                          .timeline = options.text("timeline"),
                          .is_asynchronous = options.has("asynchronous"),
                          .jitter = jitter_request_of(options),
                          .is_json = options.has("json")};
  if (!options.positional().empty()) request.plan = options.positional().front();
  check_combinations(request, options);
  return request;
}

/// Returns the paths that were given, with their options.
std::vector<command_line::NamedPath> outputs_of(const SimulateRequest& request) {
  std::vector<command_line::NamedPath> outputs;
  if (request.trace) outputs.push_back({"--trace", *request.trace});
  if (request.timeline) outputs.push_back({"--timeline", *request.timeline});
  if (request.is_json) outputs.push_back({"--json", "-"});
  return outputs;
}

void check_files(const SimulateRequest& request) {
  std::vector<command_line::NamedPath> inputs;
  if (request.model) inputs.push_back({"--model", *request.model});
  if (request.topology) inputs.push_back({"--topo", *request.topology});
  if (request.layouts) inputs.push_back({"--layouts", *request.layouts});
  if (!request.plan.empty()) inputs.push_back({"the plan", request.plan});
  check_outputs(outputs_of(request), inputs);
}

void require_same(const std::string& option, const std::string& given, const std::string& own) {
  if (given == own) return;
  throw Error{
      ErrorKind::BadInput,
      option,
      {{"", fmt::format("expected what the plan was made from (sha256 {}...), got another (sha256 "
                        "{}...); --recost costs the plan with it",
                        own.substr(0, 12), given.substr(0, 12))}}};
}

void add_shortages(PlanDocument& document, const planner::Evaluation& evaluation,
                   const Topology& topology) {
  if (evaluation.shortages.empty()) return;
  const MemoryShortage& worst = evaluation.shortages.front();
  document.warnings.push_back(fmt::format(
      "the plan does not fit: {} device{} short of memory, {} worst: it needs {} and has {}",
      evaluation.shortages.size(), evaluation.shortages.size() == 1 ? " is" : "s are",
      topology.device(worst.device).name, report::show(worst.needed, worst.limit),
      report::show(worst.limit)));
}

/// Whether the file's figures are those of the new simulation.
bool has_same_figures(const Prediction& filed, const Prediction& fresh) {
  return filed.iteration == fresh.iteration && filed.bubble_fraction == fresh.bubble_fraction &&
         filed.exposed_transfer == fresh.exposed_transfer &&
         filed.exposed_all_reduce == fresh.exposed_all_reduce;
}

/// Returns the last line: how the file's figures compare with those of the new simulation.
std::string verdict(const Prediction& filed, const Prediction& fresh) {
  if (has_same_figures(filed, fresh)) return "same figures as in the file\n";
  const double change = static_cast<double>(fresh.iteration.ns - filed.iteration.ns) /
                        static_cast<double>(std::max<std::int64_t>(filed.iteration.ns, 1));
  return fmt::format("differs from the file: iteration {} there, {} here ({:+.2f} %)\n",
                     report::show(filed.iteration), report::show(fresh.iteration, filed.iteration),
                     100 * change);
}

/// Returns the comparison of PipeDream's asynchronous execution of the plan with the synchronous
/// iteration.
std::string asynchronous_text(const Subject& subject, Contention contention) {
  const Plan& plan = subject.document.plan;
  const auto steady =
      planner::steady_state(plan, subject.document.profile, subject.topology, contention);
  if (!steady) return "Without flushes  no steady state showed\n";
  const Duration same_work = planner::time_of(*steady, plan.num_micro_batches);
  const Duration iteration = subject.document.prediction.iteration;
  std::string text = fmt::format(
      "Without flushes  {} a micro-batch, {} for the {} of an iteration ({:+.2f} %), in the "
      "steady\n"
      "                 state; every backward ends in an all-reduce and an update of its\n"
      "                 stage's weights\n",
      report::show(planner::time_of(*steady, 1), iteration), report::show(same_work, iteration),
      plan.num_micro_batches,
      100 * (static_cast<double>(same_work.ns) / static_cast<double>(iteration.ns) - 1));
  const auto neediest = std::max_element(steady->peak_memory.begin(), steady->peak_memory.end());
  text += fmt::format("                 versions of weights: {}; memory up to {} on stage {}\n",
                      fmt::join(steady->weight_versions, ", "), report::show(*neediest),
                      neediest - steady->peak_memory.begin());
  if (steady->shortages.empty()) return text;
  const MemoryShortage& worst = steady->shortages.front();
  return text + fmt::format("                 does not fit: {} needs {} and has {}\n",
                            subject.topology.device(worst.device).name,
                            report::show(worst.needed, worst.limit), report::show(worst.limit));
}

/// Returns what the plan is costed with instead of its own documents. Without --recost that is
/// nothing, and the given documents must be the plan's own.
Replacement checked_replacement(const PlanDocument& filed, const SimulateRequest& request) {
  Replacement replacement = load_replacement(request.model, request.topology);
  const std::optional<Runtime>& runtime = request.runtime ? request.runtime : filed.runtime;
  if (runtime) {
    const bool is_another = request.runtime && filed.runtime && request.runtime != filed.runtime &&
                            filed.runtime->keeps_memory();
    if (is_another && (!replacement.profile || !replacement.topology)) {
      throw command_line::usage_error(
          "--runtime",
          fmt::format("expected --model and --topo too, as those of the plan have what "
                      "{} keeps in memory",
                      printable(filed.runtime->name)));
    }
    if (request.runtime && !replacement.profile) replacement.profile = filed.original_profile();
    if (request.runtime && !replacement.topology) replacement.topology = filed.original_topology();
    if (replacement.profile) apply(*runtime, *replacement.profile);
    if (replacement.topology) reserve(*runtime, *replacement.topology);
  }
  if (request.recost) return replacement;
  if (replacement.profile) {
    require_same("--model", io::hash_of(*replacement.profile),
                 io::hash_of(filed.original_profile()));
  }
  if (replacement.topology) {
    require_same("--topo", io::hash_of(*replacement.topology),
                 io::hash_of(filed.original_topology()));
  }
  return {};
}

/// Replaces the figures of the file by the new ones.
void renew(Subject& subject, const planner::Evaluation& evaluation, bool recost) {
  PlanDocument& document = subject.document;
  document.prediction = evaluation.prediction;
  // The search and its baselines apply to the file's own costs only.
  document.request.reset();
  document.search = {};
  document.baselines.clear();
  document.schedules.clear();
  document.parallelisms.clear();
  if (recost) document.warnings = planner::warnings_about(document, subject.topology);
  add_shortages(document, evaluation, subject.topology);
}

/// Returns the summary of a plan and the statistics of its timeline. Both iterate over all actions,
/// so long timelines take two threads.
std::pair<std::string, std::string> summary_and_statistics(const Subject& subject,
                                                           const Timeline& timeline,
                                                           const report::TextStyle& style) {
  const PlanDocument& document = subject.document;
  std::string summary;
  std::string statistics;
  const std::function<void()> texts[] = {
      [&] { summary = report::write_summary(subject.document, timeline, subject.topology, style); },
      [&] {
        statistics =
            report::write_statistics(timeline, style, document.prediction.parts.collectives);
      }};
  parallel_for(std::size(texts), planner::threads_for(document.plan, document.prediction.replicas),
               [&](std::size_t i) { texts[i](); });
  return {std::move(summary), std::move(statistics)};
}

/// Writes the files that were requested.
void write_files(const SimulateRequest& request, const Timeline& timeline, const Topology& topology,
                 const std::string& plan_hash, command_line::Console& console) {
  command_line::Results results(console);
  if (request.trace) results.add(*request.trace, io::write_trace(timeline, topology));
  if (request.timeline) {
    results.add(*request.timeline, io::write_timeline(timeline, topology, plan_hash));
  }
  results.commit();
}

/// A plan and its simulation.
struct Simulated {
  Subject subject;
  SimulationMode mode;
  planner::Evaluation evaluation;
  /// The name of the plan's file, or of the option that says the layout.
  std::string source;
  /// The figures in the plan's file and the hash of its document, where these are needed.
  std::optional<Prediction> filed = {};
  std::optional<std::string> plan_hash = {};
};

io::ResultDocument result_of(const Simulated& simulated) {
  const PlanDocument& document = simulated.subject.document;
  io::PlanResult plan{.file = simulated.source,
                      .sha256 = simulated.plan_hash,
                      .model = document.profile.name,
                      .topology = document.topology.name,
                      .shape = shape_of(document.plan),
                      .parallelism = document.plan.parallelism,
                      .stage_forms = document.plan.stage_forms,
                      .prediction = document.prediction,
                      .warnings = document.warnings};
  io::ResultDocument result{.command = "simulate", .plans = {std::move(plan)}};
  if (simulated.filed) {
    result.simulation = {.iteration_in_file = simulated.filed->iteration,
                         .is_as_in_file = has_same_figures(*simulated.filed, document.prediction)};
  }
  return result;
}

/// Throws Error(Usage) if the plan has no asynchronous execution, where that was asked for.
void check_family(const SimulateRequest& request, const Plan& plan) {
  if (request.is_asynchronous && plan.parallelism.shards_optimizer) {
    throw command_line::usage_error(
        "--asynchronous",
        "expected a plan without sharded state, which every micro-batch would "
        "gather, got one");
  }
  if (!request.is_asynchronous || plan.family == ScheduleFamily::OneFOneB) return;
  throw command_line::usage_error(
      "--asynchronous", fmt::format("expected a plan under 1f1b, got one under {}; reschedule "
                                    "makes one",
                                    to_string(plan.family)));
}

constexpr SimulationMode kModeOfNewPlans{.contention = Contention::SharedWithCollectives};

/// Returns the mode that is asked for; what is left open is as in `otherwise`, and how stages send
/// is the runtime's affair.
SimulationMode mode_of(const SimulateRequest& request, SimulationMode otherwise) {
  return {request.contention.value_or(otherwise.contention),
          request.replicas.value_or(otherwise.replicas), otherwise.transfers};
}

Simulated simulate_file(const SimulateRequest& request) {
  const std::string source = command_line::source_name(request.plan);
  io::UncheckedPlan unchecked = load_unchecked_plan(request.plan);
  PlanDocument& filed = unchecked.document;
  SimulationMode mode = mode_of(request, filed.prediction.mode());
  if (request.runtime) mode.transfers = transfers_of(*request.runtime, filed.plan.family);
  check_family(request, filed.plan);
  const Replacement replacement = checked_replacement(filed, request);
  // Only a valid plan has a schedule and a hash, so this checks the plan.
  const bool is_hashed = request.timeline || request.is_json;
  if (replacement.profile || replacement.topology || is_hashed) make_subject(filed, {}, source);
  std::optional<std::string> plan_hash;
  if (is_hashed) plan_hash = io::hash_of(filed);
  Prediction prediction = filed.prediction;
  if (request.runtime) run_on(*request.runtime, filed);
  Subject subject = make_subject(std::move(filed), replacement, source);
  check_mode(subject.document.plan, mode, source);
  planner::Evaluation evaluation =
      planner::evaluate(subject.document.plan, subject.document.profile, subject.topology, mode,
                        unchecked.check_digest);
  renew(subject, evaluation, request.recost);
  return {.subject = std::move(subject),
          .mode = mode,
          .evaluation = std::move(evaluation),
          .source = source,
          .filed = std::move(prediction),
          .plan_hash = std::move(plan_hash)};
}

Simulated simulate_layout(const SimulateRequest& request) {
  const std::string source = "--layout";
  const interop::Layout layout = interop::read_layout(*request.layout, source);
  LayoutGround ground = load_layout_ground(*request.model, *request.topology, request.global_batch,
                                           request.time_scale, request.runtime);
  Subject subject = subject_of_layout(layout, ground);
  check_family(request, subject.document.plan);
  SimulationMode mode = mode_of(request, kModeOfNewPlans);
  if (request.runtime) {
    mode.transfers = transfers_of(*request.runtime, subject.document.plan.family);
  }
  check_mode(subject.document.plan, mode, source);
  planner::Evaluation evaluation =
      planner::evaluate(subject.document.plan, subject.document.profile, subject.topology, mode);
  renew(subject, evaluation, true);
  return {.subject = std::move(subject),
          .mode = mode,
          .evaluation = std::move(evaluation),
          .source = source};
}

/// Writes the files that were requested, and says what happens when.
int show(const Simulated& simulated, const SimulateRequest& request,
         command_line::Console& console) {
  const Subject& subject = simulated.subject;
  const planner::Evaluation& evaluation = simulated.evaluation;
  write_files(request, evaluation.timeline, subject.topology,
              simulated.plan_hash.value_or(std::string()), console);
  if (request.is_json) {
    print_result(result_of(simulated), &subject.topology, console);
    return command_line::kDone;
  }
  const auto [stream, style] = console.words(command_line::takes_stdout(outputs_of(request)));
  const std::optional<OtherScaling> scaling = in_other_scaling(subject.document, subject.topology);
  const auto [summary, statistics] = summary_and_statistics(subject, evaluation.timeline, style);
  stream << summary << report::other_replicas_text(evaluation.prediction, evaluation.otherwise)
         << (scaling ? text_of(*scaling, style) : std::string()) << statistics;
  if (request.is_asynchronous) stream << asynchronous_text(subject, simulated.mode.contention);
  stream << report::jitter_text(subject.document.prediction);
  if (simulated.filed) stream << verdict(*simulated.filed, evaluation.prediction);
  command_line::print_warnings_if_quiet(console, subject.document.warnings);
  return command_line::kDone;
}

int simulate(const SimulateRequest& request, command_line::Console& console) {
  check_files(request);
  if (request.layouts) {
    LayoutGround ground =
        load_layout_ground(*request.model, *request.topology, request.global_batch,
                           request.time_scale, request.runtime);
    return simulate_table(*request.layouts, ground, mode_of(request, kModeOfNewPlans),
                          request.is_csv, console);
  }
  Simulated simulated = request.layout ? simulate_layout(request) : simulate_file(request);
  if (request.jitter) {
    const std::int64_t cores = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
    simulated.subject.document.prediction.jitter =
        planner::jitter_of(simulated.evaluation, simulated.subject.topology, simulated.mode,
                           *request.jitter, static_cast<int>(cores));
  }
  return show(simulated, request, console);
}

int run_simulate(const command_line::Options& options, command_line::Console& console) {
  const SimulateRequest request = simulate_request(options);
  return run_with_result("simulate", request.is_json, console,
                         [&] { return simulate(request, console); });
}

std::vector<command_line::OptionSection> simulate_options() {
  return {
      {"",
       {{.name = "layout", .value = "WORDS", .text = "Simulate a layout, such as pp=4,dp=2,mbs=1."},
        {.name = "layouts",
         .value = "FILE",
         .kind = command_line::ValueKind::File,
         .text = "Compare the layouts of a CSV file."},
        {.name = "global-batch",
         .value = "N",
         .text = "Give a layout N samples.",
         .default_value = "the profile's"},
        model_option("Use this layer profile for a layout or for --recost."),
        topology_option("Use this topology for a layout or for --recost."),
        time_scale_option(),
        {.name = "recost",
         .text = "Cost the plan with --model and --topo, not with its own.",
         .details = "Without it, a given model or topology must be the plan's "
                    "own, which is known by its hash."},
        contention_option("the plan's"),
        replicas_option("the plan's"),
        runtime_option("Simulate how this runtime runs plans."),
        {.name = "asynchronous",
         .text = "Also show the time of a micro-batch without flushes.",
         .details = "That is PipeDream's asynchronous execution; it needs a plan "
                    "under 1f1b."},
        {.name = "jitter",
         .value = "X",
         .text = "Also let speeds of devices vary by X, such as 5%.",
         .details = "In each of up to 200 iterations every device computes at a speed of its own, "
                    "normally distributed with X as its standard deviation. Then one device of "
                    "each stage in turn is a tenth slower. The draws are the same in every run."},
        seed_option()}},
      {"Output",
       {command_line::trace_option(),
        command_line::timeline_option("Write the timeline as JSON."),
        {.name = "csv", .text = "Print the table of --layouts as CSV."},
        json_option()}}};
}

}  // namespace

command_line::Command simulate_command() {
  return {
      .description =
          {.name = "simulate",
           .summary = "simulate a plan file again, or a layout such as tp=4,pp=2",
           .usage = {"dapple-plan simulate PLAN [options]",
                     "dapple-plan simulate --layout WORDS --model FILE --topo FILE [options]",
                     "dapple-plan simulate --layouts CSV --model FILE --topo FILE [options]"},
           .about =
               "The plan is executed event by event, and its summary says what happens when. "
               "A plan that does not fit memory is simulated too, with a warning. A layout "
               "says pp, pipeline ranks; dp, replicas (all devices); mbs, samples of a "
               "micro-batch on each replica; vpp, stages on a rank; gbs, samples of an "
               "iteration; layers, blocks of each stage, as 20:28; schedule; recompute; tp, sp, "
               "cp, ep and etp, degrees within layers; zero and fsdp, what is sharded.",
           .details = {"All stages of a layout have equally many transformer blocks unless layers "
                       "says how many (or how many of all layers); what stands before and behind "
                       "the blocks is on the outer stages. The schedule is 1f1b, gpipe or, with "
                       "several stages on a rank, interleaved or breadth-first; recompute is none "
                       "or full, sp is on or off, zero is 0, 1, 3 or full-keep, which costs what "
                       "1 does; degrees need variants of all layers, dp counts data-parallel ranks "
                       "in groups too, and fsdp is the number of shards, all ranks unless given. "
                       "Ranks are on the devices in their order, replica by replica and "
                       "stage by stage.",
                       "A table of layouts is a CSV file with these words above its columns; the "
                       "exit code is 3 if a layout has a fault, and the others are simulated.",
                       "A FILE of \"-\" is stdin or stdout; with results on stdout the summary is "
                       "on stderr."},
           .takes_files = true,
           .options = simulate_options(),
           .examples =
               {"dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json",
                "dapple-plan simulate bert-large.plan.json --trace trace.json",
                "dapple-plan simulate bert-large.plan.json --topo "
                "topologies/2x8xV100.json \\",
                "    --recost", "dapple-plan simulate --layout pp=2,dp=4,mbs=2 \\",
                "    --model profiles/bert-48.json --topo topologies/8xV100.json"}},
      .run = run_simulate};
}

}  // namespace dapple::app
