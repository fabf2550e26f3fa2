#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/other_scaling.h"
#include "app/request/inputs.h"
#include "app/request/modes.h"
#include "dapple/core/parallel.h"
#include "dapple/cost/memory.h"
#include "dapple/io/documents/documents.h"
#include "dapple/planner/baselines/steady_state.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/report/summary.h"

namespace dapple::app {
namespace {

constexpr const char* kSimulateHelp =
    R"(dapple-plan simulate: run a plan file anew and show what happens when.

Usage: dapple-plan simulate PLAN [options]

  --model FILE         layer profile  } must be the plan's own (by hash),
  --topo FILE          topology       } unless --recost is given
  --recost             cost the plan with --model and --topo instead of its own
  --contention on|off  transfers share links or not    (default: the plan's)
  --replicas WAY       of a stage: together or independent (default: the plan's)
  --trace FILE         timeline for chrome://tracing or ui.perfetto.dev
  --timeline FILE      timeline as dapple-timeline/1 (ns and bytes)
  --asynchronous       also what a micro-batch takes without flushes, as in
                       PipeDream; of plans under 1f1b
A FILE of "-" is stdin or stdout; with results on stdout the summary is on
stderr. Files of that name are replaced. A plan that does not fit memory is
simulated too, with a warning.

Examples
  dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json
  dapple-plan simulate bert-large.plan.json --trace trace.json
  dapple-plan simulate bert-large.plan.json --topo topologies/2x8xV100.json \
      --recost
)";

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

/// Returns the last line: whether the file's figures are those of the new simulation.
std::string verdict(const Prediction& filed, const Prediction& fresh) {
  if (filed.iteration == fresh.iteration && filed.bubble_fraction == fresh.bubble_fraction &&
      filed.exposed_transfer == fresh.exposed_transfer &&
      filed.exposed_all_reduce == fresh.exposed_all_reduce) {
    return "same figures as in the file\n";
  }
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
Replacement checked_replacement(const PlanDocument& filed, const command_line::Options& options) {
  Replacement replacement = load_replacement(options);
  if (options.has("recost")) return replacement;
  if (replacement.profile) {
    require_same("--model", io::hash_of(*replacement.profile), io::hash_of(filed.profile));
  }
  if (replacement.topology) {
    require_same("--topo", io::hash_of(*replacement.topology), io::hash_of(filed.topology));
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
  if (recost) document.warnings = planner::warnings_about(document, subject.topology);
  add_shortages(document, evaluation, subject.topology);
}

/// Returns the summary of a plan and the statistics of its timeline. Both iterate over all actions,
/// so long timelines take two threads.
std::pair<std::string, std::string> summary_and_statistics(const Subject& subject,
                                                           const Timeline& timeline,
                                                           const report::TextStyle& style) {
  constexpr std::size_t kFewActions = 100'000;
  std::string summary;
  std::string statistics;
  const std::function<void()> texts[] = {
      [&] { summary = report::write_summary(subject.document, timeline, subject.topology, style); },
      [&] { statistics = report::write_statistics(timeline, style); }};
  parallel_for(std::size(texts), timeline.actions.size() > kFewActions ? 2 : 1,
               [&](std::size_t i) { texts[i](); });
  return {std::move(summary), std::move(statistics)};
}

int run_simulate(const command_line::Options& options, command_line::Console& console) {
  if (options.positional().size() != 1) {
    throw command_line::usage_error(
        "simulate", fmt::format("expected one plan file, got {}", options.positional().size()));
  }
  const std::string& path = options.positional().front();
  if (options.has("recost") && !options.has("model") && !options.has("topo")) {
    throw command_line::usage_error("--recost",
                                    "expected --model or --topo beside it, got neither");
  }
  std::vector<command_line::NamedPath> inputs =
      command_line::given_paths(options, {"model", "topo"});
  inputs.push_back({"the plan", path});
  const std::vector<command_line::NamedPath> outputs =
      command_line::given_paths(options, {"trace", "timeline"});
  check_outputs(outputs, inputs);

  io::UncheckedPlan unchecked = load_unchecked_plan(path);
  PlanDocument& filed = unchecked.document;
  const SimulationMode mode{contention_of(options, filed.prediction.contention),
                            replicas_of(options, filed.prediction.replicas)};
  if (options.has("asynchronous") && filed.plan.family != ScheduleFamily::OneFOneB) {
    throw command_line::usage_error(
        "--asynchronous",
        fmt::format("expected a plan under 1f1b, got one under {}; reschedule makes one",
                    to_string(filed.plan.family)));
  }
  const Replacement replacement = checked_replacement(filed, options);
  // Only a valid plan has a schedule and a hash, so this checks the plan.
  if (replacement.profile || replacement.topology || options.has("timeline")) {
    make_subject(filed, {}, command_line::source_name(path));
  }
  const std::string plan_hash = options.has("timeline") ? io::hash_of(filed) : std::string();
  const Prediction prediction = filed.prediction;
  Subject subject = make_subject(std::move(filed), replacement, command_line::source_name(path));
  const planner::Evaluation evaluation =
      planner::evaluate(subject.document.plan, subject.document.profile, subject.topology, mode,
                        unchecked.check_digest);
  renew(subject, evaluation, options.has("recost"));

  const auto trace = options.text("trace");
  const auto timeline = options.text("timeline");
  command_line::Results results(console);
  if (trace) results.add(*trace, io::write_trace(evaluation.timeline, subject.topology));
  if (timeline) {
    results.add(*timeline, io::write_timeline(evaluation.timeline, subject.topology, plan_hash));
  }
  results.commit();
  const auto [stream, style] = console.words(command_line::takes_stdout(outputs));
  const std::optional<OtherScaling> scaling = in_other_scaling(subject.document, subject.topology);
  const auto [summary, statistics] = summary_and_statistics(subject, evaluation.timeline, style);
  stream << summary << report::other_replicas_text(evaluation.prediction, evaluation.otherwise)
         << (scaling ? text_of(*scaling, style) : std::string()) << statistics
         << (options.has("asynchronous") ? asynchronous_text(subject, mode.contention)
                                         : std::string())
         << verdict(prediction, evaluation.prediction);
  command_line::print_warnings_if_quiet(console, subject.document.warnings);
  return command_line::kDone;
}

}  // namespace

command_line::Command simulate_command() {
  return {.name = "simulate",
          .help = kSimulateHelp,
          .options = {{.name = "model"},
                      {.name = "topo"},
                      {.name = "recost", .takes_value = false},
                      {.name = "contention"},
                      {.name = "replicas"},
                      {.name = "trace"},
                      {.name = "timeline"},
                      {.name = "asynchronous", .takes_value = false}},
          .run = run_simulate};
}

}  // namespace dapple::app
