#include <fmt/format.h>

#include <ostream>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/progress_line.h"
#include "app/request/inputs.h"
#include "app/request/modes.h"
#include "dapple/interop/plans/given_order.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/optimality.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/report/summary.h"

namespace dapple::app {
namespace {

constexpr const char* kRescheduleHelp =
    R"(dapple-plan reschedule: a plan's stages and devices under another schedule.

Usage: dapple-plan reschedule PLAN --schedule FAMILY [options]

  --schedule FAMILY    gpipe, 1f1b; list-scheduled (1F1B's memory, the order
                       that costs ask for); interleaved, breadth-first (several
                       stages per device); zb-h1, zb-h2, zb-v (zero bubble, the
                       backward in two parts); given (with --order)
  --chunks N           stages per device of the looped families  (default: 2)
  --order FILE         whose order of actions: text as "schedule" prints it, or
                       CSV as PyTorch stores it
  --orders N           about how many orders are tried of list-scheduled and
                       zb-*; more are never worse            (default: 20000,
                       fewer where an order has many tasks)
  --time-limit S       of these and 1f1b: stop trying after S seconds
  --memory-limit SIZE  what the search keeps, by count       (default: 2 GiB)
  --contention on|off  transfers share links or not    (default: the plan's)
  --replicas WAY       of a stage: together or independent (default: the plan's)
  -o, --output FILE    plan file, in place of one of that name
                                            (default: ./MODEL.FAMILY.plan.json)
PLAN of "-" is stdin, and a FILE of "-" is stdout.
Stages stay as they are unless their number changes; then layers are cut anew.
Where costs decide the order, the plan's own is tried first if the family allows
it, and orders are compared by simulation, all-reduces and shared links included.

Example
  dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json
  dapple-plan reschedule bert-large.plan.json --schedule gpipe

Exit code 4 if the plan does not fit that way; what is missing and the remedy
are said.
)";

constexpr std::int64_t kMostChunks = 1000;
constexpr std::int64_t kMostOrders = 1'000'000'000;

ScheduleFamily family_of(const command_line::Options& options) {
  options.required("schedule", "a schedule family");
  std::vector<std::string> names;
  for (const ScheduleFamily family : kScheduleFamilies) names.emplace_back(to_string(family));
  const std::string name = options.choice("schedule", names);
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (to_string(family) == name) return family;
  }
  throw Bug("a schedule family that was a choice is none");
}

std::int64_t chunks_of(const command_line::Options& options, ScheduleFamily family,
                       const Plan& plan) {
  const bool loops =
      family == ScheduleFamily::Interleaved || family == ScheduleFamily::BreadthFirst;
  const auto given = options.positive_integer("chunks", kMostChunks);
  if (given && !loops) {
    throw command_line::usage_error("--chunks",
                                    fmt::format("expected it with interleaved or breadth-first "
                                                "only, got it with {}",
                                                to_string(family)));
  }
  if (given == 1) {
    throw command_line::usage_error("--chunks",
                                    "expected 2 or more, as 1f1b has one stage per device, got 1");
  }
  if (family == ScheduleFamily::Given) return plan.chunks_per_device;
  if (family == ScheduleFamily::ZeroBubbleV) return 2;
  return loops ? given.value_or(2) : 1;
}

/// Replaces in the document what the new schedule changes.
void renew(PlanDocument& document, planner::Rescheduled&& made, const Topology& topology,
           StopReason stop_reason) {
  document.tool = kTool;
  document.plan = std::move(made.plan);
  document.prediction = made.evaluation.prediction;
  document.baselines.clear();
  document.request.reset();
  document.search = {};
  document.schedules.clear();
  document.search.planner = kReschedulePlanner;
  document.search.cut = {"stages, devices and micro-batches other than the given plan's"};
  document.warnings = planner::warnings_about(document, topology);
  if (made.is_stopped) document.warnings.push_back(planner::stop_warning(stop_reason));
  document.search.candidates = made.effort.tried;
  document.search.simulated = made.effort.simulated;
  if (!made.lower_bound) return;
  document.search.searched = {fmt::format("orders of {}", to_string(document.plan.family))};
  document.prediction.lower_bound = made.lower_bound;
  document.prediction.optimality_gap =
      optimality_gap(document.prediction.iteration, *made.lower_bound);
  // The orders that were not tried are a single open part of the space.
  document.search.open = document.prediction.iteration == *made.lower_bound ? 0 : 1;
}

std::string verdict(const Prediction& before, const Prediction& after) {
  const double change = static_cast<double>(after.iteration.ns - before.iteration.ns) /
                        static_cast<double>(std::max<std::int64_t>(before.iteration.ns, 1));
  return fmt::format("iteration {} before, {} under this schedule ({:+.2f} %)\n",
                     report::show(before.iteration),
                     report::show(after.iteration, before.iteration), 100 * change);
}

/// Throws Error(Usage) for options that have no effect, as only some families involve a search.
void require_search(const command_line::Options& options, ScheduleFamily family) {
  const bool is_searched = planner::searches_order(family);
  if (options.has("orders") && !is_searched) {
    throw command_line::usage_error("--orders",
                                    fmt::format("expected a schedule whose order is searched, "
                                                "list-scheduled, zb-h1, zb-h2 or zb-v, got {}",
                                                to_string(family)));
  }
  if (options.has("time-limit") && !is_searched && family != ScheduleFamily::OneFOneB) {
    throw command_line::usage_error(
        "--time-limit", fmt::format("expected a schedule that is searched, 1f1b, list-scheduled, "
                                    "zb-h1, zb-h2 or zb-v, got {}, which is made at once",
                                    to_string(family)));
  }
}

planner::Reschedule request_of(const command_line::Options& options, const Subject& subject) {
  const Plan& plan = subject.document.plan;
  planner::Reschedule request;
  request.family = family_of(options);
  request.chunks_per_device = chunks_of(options, request.family, plan);
  request.contention = contention_of(options, subject.document.prediction.contention);
  request.replicas = replicas_of(options, subject.document.prediction.replicas);
  require_search(options, request.family);
  request.evaluations = options.positive_integer("orders", kMostOrders);
  request.memory_limit = memory_limit_of(options);
  const auto order = options.text("order");
  if (order.has_value() != (request.family == ScheduleFamily::Given)) {
    throw command_line::usage_error("--order",
                                    order ? "expected --schedule given beside it"
                                          : "expected a file for --schedule given, got nothing");
  }
  if (order) {
    request.order = interop::read_order(io::read_file(*order), command_line::source_name(*order),
                                        plan, subject.topology);
  }
  return request;
}

/// Prints why there is no schedule and how to get one; returns the exit code.
int refuse(command_line::Console& console, const planner::NoSchedule& none,
           const planner::Reschedule& request, const Topology& topology) {
  const std::string family(to_string(request.family));
  console.err << fmt::format("{} no {} schedule of these stages: {}\n",
                             report::paint("error:", report::Ink::Bad, console.err_style), family,
                             printable(none.reasons.front()));
  for (std::size_t i = 1; i < none.reasons.size(); ++i) {
    console.err << fmt::format("  also             {}\n", printable(none.reasons[i]));
  }
  std::string remedy = fmt::format("\"plan --schedule {}\", which chooses stages for it", family);
  if (request.family == ScheduleFamily::Given) remedy = "an order that does without that";
  if (none.is_too_long) {
    remedy = "a larger --memory-limit, or a plan with larger micro-batches";
  } else if (none.shortage) {
    const MemoryShortage& worst = *none.shortage;
    console.err << fmt::format(
        "  tightest device  {} needs {}, has {}: {} ({} bytes) are missing\n",
        printable(topology.device(worst.device).name), report::show(worst.needed),
        report::show(worst.limit), report::show(worst.missing()), worst.missing().count);
    if (request.family == ScheduleFamily::Given) {
      remedy = "an order with fewer micro-batches in flight";
    } else if (request.family == ScheduleFamily::GPipe) {
      remedy = "--schedule 1f1b: it holds fewer micro-batches at a time";
    } else {
      remedy += ", or more memory";
    }
  }
  console.err << fmt::format("  cheapest remedy  {}\n", remedy);
  return command_line::kInfeasible;
}

int run_reschedule(const command_line::Options& options, command_line::Console& console) {
  if (options.positional().size() != 1) {
    throw command_line::usage_error(
        "reschedule", fmt::format("expected one plan file, got {}", options.positional().size()));
  }
  const std::string& path = options.positional().front();
  std::vector<command_line::NamedPath> inputs = command_line::given_paths(options, {"order"});
  inputs.insert(inputs.begin(), {"the plan", path});
  command_line::check_inputs(inputs);
  Subject subject = make_subject(load_own_plan(path), {}, command_line::source_name(path));
  PlanDocument& document = subject.document;
  planner::Reschedule request = request_of(options, subject);
  const std::string output = options.text("output").value_or(command_line::default_output(
      document.profile, fmt::format(".{}.plan.json", to_string(request.family))));
  check_outputs({{"--output", output}}, inputs);

  ProgressLine progress{console, options.positive_seconds("time-limit")};
  request.should_stop = [&progress] { return progress.should_stop(); };
  std::variant<planner::Rescheduled, planner::NoSchedule> made =
      planner::reschedule(document.plan, document.profile, subject.topology, request);
  if (const auto* none = std::get_if<planner::NoSchedule>(&made)) {
    return refuse(console, *none, request, subject.topology);
  }
  const Prediction before = document.prediction;
  planner::Rescheduled& rescheduled = std::get<planner::Rescheduled>(made);
  if (!rescheduled.evaluation.shortages.empty()) {
    return refuse(console,
                  {.reasons = {"what it holds does not fit into memory"},
                   .shortage = rescheduled.evaluation.shortages.front()},
                  request, subject.topology);
  }
  const Timeline timeline = std::move(rescheduled.evaluation.timeline);
  const std::optional<Duration> otherwise = rescheduled.evaluation.otherwise;
  renew(document, std::move(rescheduled), subject.topology, progress.stop_reason());
  command_line::write_result(console, output, io::write_plan(document));
  const auto [stream, style] = console.words(output == "-");
  stream << report::write_summary(document, timeline, subject.topology, style)
         << report::other_replicas_text(document.prediction, otherwise)
         << verdict(before, document.prediction);
  command_line::print_warnings_if_quiet(console, document.warnings);
  if (output != "-") stream << "plan written to " << printable(output) << '\n';
  return command_line::kDone;
}

}  // namespace

command_line::Command reschedule_command() {
  return {.name = "reschedule",
          .help = kRescheduleHelp,
          .options = {{.name = "schedule"},
                      {.name = "chunks"},
                      {.name = "order"},
                      {.name = "orders"},
                      {.name = "time-limit"},
                      {.name = "memory-limit"},
                      {.name = "contention"},
                      {.name = "replicas"},
                      {.name = "output", .letter = 'o'}},
          .run = run_reschedule};
}

}  // namespace dapple::app
