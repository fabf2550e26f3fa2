#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/no_plan_text.h"
#include "app/commands/progress_line.h"
#include "app/request/inputs.h"
#include "app/request/modes.h"
#include "app/request/runtimes.h"
#include "dapple/interop/plans/given_order.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/files/read_file.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/plan/warning_text.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/report/summary.h"

namespace dapple::app {
namespace {

constexpr std::int64_t kMostChunks = 1000;
constexpr std::int64_t kMostOrders = 1'000'000'000;

struct RescheduleRequest {
  std::string plan;
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  /// Empty where the family decides it.
  std::optional<std::int64_t> chunks;
  std::optional<std::string> order;
  std::optional<std::int64_t> orders;
  std::optional<Duration> time_limit;
  Bytes memory_limit;
  std::optional<Contention> contention;
  std::optional<Replicas> replicas;
  std::optional<std::string> output;
};

bool is_any(ScheduleFamily) {
  return true;
}

/// Whether --chunks says how many stages a device has; under zb-v it always has two.
bool takes_chunks(ScheduleFamily family) {
  return has_loops(family) && family != ScheduleFamily::ZeroBubbleV;
}

/// Whether reschedule tries several schedules of the family, which may take long.
bool tries_schedules(ScheduleFamily family) {
  return planner::searches_order(family) || family == ScheduleFamily::OneFOneB;
}

std::vector<std::string> family_names(bool (*is_listed)(ScheduleFamily)) {
  std::vector<std::string> names;
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (is_listed(family)) names.emplace_back(to_string(family));
  }
  return names;
}

ScheduleFamily family_of(const command_line::Options& options) {
  options.required("schedule", "a schedule family");
  const std::string name = options.choice("schedule");
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (to_string(family) == name) return family;
  }
  throw Bug("a schedule family that was a choice is none");
}

void check_chunks(const RescheduleRequest& request) {
  if (request.chunks && !takes_chunks(request.family)) {
    throw command_line::usage_error(
        "--chunks",
        fmt::format("needs --schedule {}, got {}",
                    command_line::list_of(family_names(takes_chunks)), to_string(request.family)));
  }
  if (request.chunks == 1) {
    throw command_line::usage_error("--chunks",
                                    "expected 2 or more, as 1f1b has one stage per device, got 1");
  }
}

std::int64_t chunks_of(const RescheduleRequest& request, const Plan& plan) {
  if (request.family == ScheduleFamily::Given) return plan.chunks_per_device;
  return has_loops(request.family) ? request.chunks.value_or(2) : 1;
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
  document.search.outside =
      outside_space(document.original_profile(), sharding_of(document.plan.parallelism),
                    !document.plan.stage_forms.empty());
  document.schedules.clear();
  document.parallelisms.clear();
  document.search.planner = kReschedulePlanner;
  document.search.cut = {std::string{kCutOfReschedule}};
  document.warnings = planner::warnings_about(document, topology);
  if (made.is_stopped) document.warnings.push_back(warning_of_reschedule_stop(stop_reason));
  document.search.candidates = made.effort.tried;
  document.search.simulated = made.effort.simulated;
  if (!made.lower_bound) return;
  document.search.searched = {orders_of(document.plan.family)};
  set_proven_bound(document.prediction, made.lower_bound);
  // The orders that were not tried are a single open part of the space.
  document.search.open = is_gap_closed(document.prediction) ? 0 : 1;
}

std::string verdict(const Prediction& before, const Prediction& after) {
  const double change = static_cast<double>(after.iteration.ns - before.iteration.ns) /
                        static_cast<double>(std::max<std::int64_t>(before.iteration.ns, 1));
  return fmt::format("iteration {} before, {} under this schedule ({:+.2f} %)\n",
                     report::show(before.iteration),
                     report::show(after.iteration, before.iteration), 100 * change);
}

/// Throws Error(Usage) for options that have no effect, as only some families involve a search.
void require_search(const RescheduleRequest& request) {
  const ScheduleFamily family = request.family;
  if (request.orders && !planner::searches_order(family)) {
    throw command_line::usage_error(
        "--orders", fmt::format("expected a schedule whose order is searched, {}, got {}",
                                command_line::list_of(family_names(planner::searches_order)),
                                to_string(family)));
  }
  if (request.time_limit && !tries_schedules(family)) {
    throw command_line::usage_error(
        "--time-limit",
        fmt::format("expected a schedule that is searched, {}, got {}, which is made at once",
                    command_line::list_of(family_names(tries_schedules)), to_string(family)));
  }
}

RescheduleRequest reschedule_request(const command_line::Options& options) {
  if (options.positional().size() != 1) {
    throw command_line::usage_error(
        "reschedule", fmt::format("expected one plan file, got {}", options.positional().size()));
  }
  RescheduleRequest request{.plan = options.positional().front(),
                            .family = family_of(options),
                            .chunks = options.positive_integer("chunks", kMostChunks),
                            .order = options.text("order"),
                            .orders = options.positive_integer("orders", kMostOrders),
                            .time_limit = options.positive_seconds("time-limit"),
                            .memory_limit = memory_limit_of(options),
                            .contention = contention_of(options),
                            .replicas = replicas_of(options),
                            .output = options.text("output")};
  check_chunks(request);
  require_search(request);
  if (request.order.has_value() != (request.family == ScheduleFamily::Given)) {
    throw command_line::usage_error("--order", request.order
                                                   ? "needs --schedule given"
                                                   : "a file is required with --schedule given");
  }
  return request;
}

/// Returns what is asked of the planner for this plan; reads the order, if one is given.
planner::Reschedule planner_request(const RescheduleRequest& asked, const Subject& subject) {
  const Plan& plan = subject.document.plan;
  const Prediction& filed = subject.document.prediction;
  planner::Reschedule request;
  request.family = asked.family;
  request.chunks_per_device = chunks_of(asked, plan);
  request.contention = asked.contention.value_or(filed.contention);
  request.replicas = asked.replicas.value_or(filed.replicas);
  check_forwarded(plan, "rescheduled plans send", command_line::source_name(asked.plan));
  if (has_larger_groups(plan)) {
    check_mode(plan, {request.contention, request.replicas}, command_line::source_name(asked.plan));
  }
  request.evaluations = asked.orders;
  request.memory_limit = asked.memory_limit;
  if (asked.order) {
    request.order =
        interop::read_order(io::read_file(*asked.order), command_line::source_name(*asked.order),
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
                             printable(refusal_text(none.reason, request.family)));
  std::string remedy = fmt::format("\"plan --schedule {}\", which chooses stages for it", family);
  if (request.family == ScheduleFamily::Given) remedy = "an order that does without that";
  const bool is_too_long = std::holds_alternative<planner::TooLongToSimulate>(none.reason) ||
                           std::holds_alternative<planner::TooLongToSearch>(none.reason);
  if (is_too_long) {
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

/// Throws Error(BadInput) for a plan whose runtime has one schedule only.
void check_is_free(const PlanDocument& document, const std::string& source) {
  if (document.runtime && document.runtime->has_least_depths) {
    throw Error{
        ErrorKind::BadInput,
        source,
        {{"/runtime", fmt::format("expected a runtime that has any depths, got \"{}\", which "
                                  "has the least ones",
                                  printable(document.runtime->name))}}};
  }
  // What a runtime does under the plan's schedule it may not do under another one.
  const Transfers transfers =
      document.runtime ? document.runtime->transfers : document.prediction.transfers;
  if (transfers == Transfers::Overlapped) return;
  throw Error{ErrorKind::BadInput,
              source,
              {{document.runtime ? "/runtime/transfers" : "/predicted/transfers",
                fmt::format("expected overlapped ones, got {}", to_string(transfers))}}};
}

int run_reschedule(const command_line::Options& options, command_line::Console& console) {
  const RescheduleRequest asked = reschedule_request(options);
  std::vector<command_line::NamedPath> inputs{{"the plan", asked.plan}};
  if (asked.order) inputs.push_back({"--order", *asked.order});
  command_line::check_inputs(inputs);
  Subject subject =
      make_subject(load_own_plan(asked.plan), {}, command_line::source_name(asked.plan));
  PlanDocument& document = subject.document;
  check_is_free(document, command_line::source_name(asked.plan));
  planner::Reschedule request = planner_request(asked, subject);
  const std::string output = asked.output.value_or(command_line::default_output(
      document.profile, fmt::format(".{}.plan.json", to_string(request.family))));
  check_outputs({{"--output", output}}, inputs);

  ProgressLine progress{console, asked.time_limit};
  request.should_stop = [&progress] { return progress.should_stop(); };
  std::variant<planner::Rescheduled, planner::NoSchedule> made =
      planner::reschedule(document.plan, document.profile, subject.topology, request);
  if (const auto* none = std::get_if<planner::NoSchedule>(&made)) {
    return refuse(console, *none, request, subject.topology);
  }
  const Prediction before = document.prediction;
  planner::Rescheduled& rescheduled = std::get<planner::Rescheduled>(made);
  if (!rescheduled.evaluation.shortages.empty()) {
    return refuse(
        console,
        {.reason = planner::DoesNotFit{}, .shortage = rescheduled.evaluation.shortages.front()},
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

std::vector<command_line::OptionSection> reschedule_options() {
  return {{"",
           {{.name = "schedule",
             .value = "FAMILY",
             .choices = family_names(is_any),
             .text = "Use the family {}."},
            {.name = "chunks",
             .value = "N",
             .text = "Put N stages on a device.",
             .default_value = "2",
             .details = "It is for interleaved and breadth-first."},
            {.name = "order",
             .value = "FILE",
             .kind = command_line::ValueKind::File,
             .text = "Read the order of actions of the family given.",
             .details = "The file is text as \"dapple-plan schedule\" prints it, or CSV as PyTorch "
                        "stores it; \"-\" is stdin."},
            contention_option("the plan's"),
            replicas_option("the plan's")}},
          {"Search",
           {{.name = "orders",
             .value = "N",
             .text = "Try about N orders.",
             .default_value = "20000, fewer for long orders",
             .details = "It is for list-scheduled and zb-*, whose order is searched. More orders "
                        "never give a slower plan."},
            {.name = "time-limit",
             .value = "SECONDS",
             .text = "Stop trying after SECONDS, as Ctrl-C does.",
             .details = "It is for the same families, and for 1f1b."},
            memory_limit_option()}},
          {"Output", {command_line::output_option("Write the plan.", "./MODEL.FAMILY.plan.json")}}};
}

}  // namespace

command_line::Command reschedule_command() {
  return {
      .description =
          {.name = "reschedule",
           .summary = "put a plan's stages and devices under another schedule",
           .usage = {"dapple-plan reschedule PLAN --schedule FAMILY [options]"},
           .about =
               "Stages stay as they are unless their number changes; then layers are cut anew. "
               "The family list-scheduled has the memory of 1F1B and the order that the costs "
               "ask for; interleaved and breadth-first put several stages on a device; zb-h1, "
               "zb-h2 and zb-v (zero bubble) run the backward in two parts; given takes the "
               "order of --order. A PLAN of \"-\" is stdin.",
           .details = {"Where costs decide the order, the plan's own is tried first if the family "
                       "allows it, and orders are compared by simulation, with all-reduces and "
                       "shared links."},
           .takes_files = true,
           .options = reschedule_options(),
           .examples =
               {"dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json",
                "dapple-plan reschedule bert-large.plan.json --schedule gpipe"},
           .exit_codes = {{command_line::kInfeasible,
                           "the plan does not fit that way; the message says what is missing and "
                           "what helps"}}},
      .run = run_reschedule};
}

}  // namespace dapple::app
