#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/json_result.h"
#include "app/commands/no_plan_text.h"
#include "app/commands/other_scaling.h"
#include "app/commands/plan/alternatives.h"
#include "app/commands/plan/baseline_files.h"
#include "app/commands/plan/order_gap.h"
#include "app/commands/plan/planning.h"
#include "app/commands/plan/sensitivity.h"
#include "app/commands/progress_line.h"
#include "app/request/for_target.h"
#include "app/request/groups.h"
#include "app/request/inputs.h"
#include "app/request/plan_request.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/documents/proof_document.h"
#include "dapple/io/runtime/runtime_document.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/runtime.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/search_limits.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/report/show.h"
#include "dapple/report/summary.h"

namespace dapple::app {
namespace {

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
      "where not all placements are tried, decision diagrams may take {} steps first, with at most "
      "{} nodes for each state",
      limits.diagram_steps, limits.last_width);
  spdlog::info(
      "then {} actions to refine depths, {} for threshold accepting from a plan, {} to "
      "exhaust depths",
      limits.refinement, limits.threshold_accepting, limits.exhaustion);
}

std::string output_of(const PlanCommandRequest& request, const ModelProfile& profile) {
  return request.output.value_or(command_line::default_output(profile, ".plan.json"));
}

void check_plan_outputs(const PlanCommandRequest& request, const ModelProfile& profile) {
  std::vector<command_line::NamedPath> outputs{{"--output", output_of(request, profile)}};
  if (request.trace) outputs.push_back({"--trace", *request.trace});
  if (request.proof) outputs.push_back({"--proof", *request.proof});
  if (request.is_json) outputs.push_back({"--json", "-"});
  if (request.baselines) add_baseline_outputs(*request.baselines, outputs);
  if (request.alternatives_folder) {
    add_alternative_outputs(*request.alternatives_folder, *request.alternatives, outputs);
  }
  check_outputs(outputs, {{"--model", request.model}, {"--topo", request.topology}});
}

struct SearchEnd {
  std::variant<planner::MadePlan, planner::Infeasible> result;
  StopReason stop_reason = StopReason::None;
  std::optional<OtherScaling> scaling = std::nullopt;
};

/// Searches for a plan.
SearchEnd search(const SearchInputs& inputs, const Topology& topology,
                 const planner::PlannerOptions& planner,
                 const std::optional<planner::PlanRestriction>& restriction,
                 ProgressLine& progress) {
  const planner::PlanningContext context{inputs.profile, topology, planner, &progress};
  auto result = make_plan(context, restriction, inputs.left_out);
  SearchEnd end{.result = std::move(result), .stop_reason = progress.stop_reason()};
  const auto* made = std::get_if<planner::MadePlan>(&end.result);
  if (made == nullptr) return end;
  // The search with another scaling is for plans of the chosen form of parallelism only.
  const PlanDocument& document = made->document;
  const Topology of_plan{document.topology};
  end.scaling = in_other_scaling(document, of_plan);
  if (end.scaling && !progress.should_stop()) {
    search_in_other_scaling(*end.scaling, {document.profile, of_plan, planner, &progress},
                            restriction);
  }
  return end;
}

/// Returns the inputs that --explain searches with, each with one change.
std::vector<ChangedInputs> changed_inputs(const PlanCommandRequest& request,
                                          const SearchInputs& inputs, bool fits) {
  std::vector<ChangedInputs> changes = changed_topologies(inputs.profile, inputs.topology);
  if (inputs.launched_sooner) {
    changes.push_back({"half the launch floors", *inputs.launched_sooner, inputs.topology});
  }
  if (fits) return changes;
  std::vector<ChangedInputs> more =
      changes_for_memory(inputs.profile, inputs.topology, request.planner.sharding);
  std::move(more.begin(), more.end(), std::back_inserter(changes));
  return changes;
}

/// Searches with one change. What is asked for may be impossible with it.
Sensitivity search_with(const ChangedInputs& change, const PlanCommandRequest& request,
                        planner::PlannerOptions planner, ProgressLine& progress) {
  Sensitivity found{.words = change.words};
  try {
    const Topology topology{change.topology, command_line::source_name(request.topology)};
    planner.sharding = change.sharding.value_or(planner.sharding);
    planner.baselines = false;
    const auto result = plan_as_requested(request, change.profile, topology, planner, progress);
    found.was_stopped = progress.stop_reason() != StopReason::None;
    if (const auto* made = std::get_if<planner::MadePlan>(&result)) {
      found.iteration = made->document.prediction.iteration;
      found.shape = shape_of(made->document.plan);
    }
  } catch (const Error& error) {
    found.is_impossible = true;
    if (!error.violations().empty()) found.why_impossible = error.violations().front().message;
  }
  return found;
}

/// Searches with each change, until a signal is received. All searches together have as much time
/// as the plan's own.
std::vector<Sensitivity> search_with_each(const std::vector<ChangedInputs>& changes,
                                          const PlanCommandRequest& request,
                                          const planner::PlannerOptions& planner,
                                          ProgressLine& progress) {
  std::vector<Sensitivity> found;
  std::optional<Duration> share = request.time_limit;
  if (share && !changes.empty()) share->ns /= static_cast<std::int64_t>(changes.size());
  for (const ChangedInputs& change : changes) {
    progress.restart(share);
    if (progress.should_stop()) break;
    found.push_back(search_with(change, request, planner, progress));
  }
  progress.clear();
  return found;
}

/// Returns how a plan that was chosen by its median compares with the fastest one; an empty text
/// for any other.
std::string choice_text(const planner::MadePlan& made) {
  if (!made.under_jitter) return {};
  const planner::ChoiceUnderJitter& choice = *made.under_jitter;
  const auto percent = [](Duration part, Duration whole) {
    return 100 * static_cast<double>(part.ns) /
           static_cast<double>(std::max<std::int64_t>(whole.ns, 1));
  };
  if (choice.compared == 1) return "               no other plan was compared\n";
  const std::string compared =
      fmt::format("               of {} plans compared, ", choice.compared);
  const Duration gain = choice.median_of_fastest - made.document.prediction.jitter->median;
  if (gain == Duration{}) return compared + "none has a smaller median than the fastest\n";
  const Duration fastest = fastest_found(made.document);
  const Duration loss = made.document.prediction.iteration - fastest;
  return compared + fmt::format(
                        "this has the least median, {:.1f} % below that of the fastest;\n"
                        "               without jitter it is {}\n",
                        percent(gain, choice.median_of_fastest),
                        loss == Duration{}
                            ? "as fast as that"
                            : fmt::format("{:.2f} % slower", percent(loss, fastest)));
}

/// Returns a line about a plan that is as fast with less memory; an empty text if none is known.
std::string frugal_text(const planner::MadePlan& made, const report::TextStyle& style) {
  if (!made.frugal) return {};
  const std::string text = fmt::format(
      "--micro-batch {} is as fast with {} a device, but further below measured batches",
      made.frugal->micro_batch_size, report::show(made.frugal->peak_memory));
  return fmt::format("Less memory: {}\n", report::fill_lines(text, 13, style));
}

/// Returns a line about transfers that a target's runtime does not overlap, where the plan is of
/// no runtime and could be of that one; an empty text otherwise.
std::string blocking_text(const PlanCommandRequest& request, const PlanDocument& document) {
  if (!request.target || request.runtime || document.plan.stages.size() == 1) return {};
  const planner::PlannerOptions& asked = request.planner;
  if (asked.every_family || asked.replicas == Replicas::Independent) return {};
  if (!is_planned_as_1f1b(document.plan.family)) return {};
  for (const Runtime& runtime : io::shipped_runtimes()) {
    if (runtime.name != *request.target) continue;
    if (transfers_of(runtime, document.plan.family) == Transfers::Overlapped) continue;
    return fmt::format("Transfers: those of {0} block both stages, which --runtime {0} counts\n",
                       runtime.name);
  }
  return {};
}

struct Finding {
  const planner::MadePlan& made;
  const std::optional<OtherScaling>& scaling;
  const Topology& topology;
  const std::vector<Sensitivity>& sensitivities;
  const ProofEnd& proof;
  const std::optional<AlternativesEnd>& alternatives;
  // How the plan compares with those over other orders of the layers, if that was asked for.
  const std::optional<std::string>& other_orders;
};

io::PlanResult result_of(const PlanDocument& document, const std::string& file) {
  io::PlanResult plan = io::plan_result(document, file);
  plan.prediction = document.prediction;
  plan.warnings = document.warnings;
  return plan;
}

/// Writes all files together, then the summary.
int write_outputs(const Finding& finding, const PlanCommandRequest& request,
                  command_line::Console& console) {
  const PlanDocument& document = finding.made.document;
  const Topology& topology = finding.topology;
  const Timeline& timeline = finding.made.evaluation.timeline;
  const std::string output = output_of(request, document.profile);
  const std::optional<std::string>& trace = request.trace;
  const bool out_is_taken = output == "-" || trace == "-" || request.proof == "-";
  const auto [stream, style] = console.words(out_is_taken);
  command_line::Results results(console);
  if (request.baselines) { write_baselines(*request.baselines, finding.made, topology, results); }
  results.add(output, io::write_plan(document));
  if (trace) results.add(*trace, io::write_trace(timeline, topology));
  if (finding.alternatives && request.alternatives_folder) {
    write_alternatives(*request.alternatives_folder, *finding.alternatives, results);
  }
  if (finding.proof.proof) {
    results.add(*request.proof, io::write_proof(*finding.proof.proof, kTool));
  }
  results.commit();
  const bool lacks_proof = request.proof && !finding.proof.proof;
  const int code = lacks_proof ? command_line::kNotVerified : command_line::kDone;
  if (lacks_proof) {
    command_line::print_warning(console, "no proof is written: " + finding.proof.why_not);
  }
  if (request.is_json) {
    io::ResultDocument result{
        .command = "plan", .exit_code = code, .plans = {result_of(document, output)}};
    if (finding.alternatives) {
      result.alternatives =
          alternative_results(*finding.alternatives, document, request.alternatives_folder);
    }
    print_result(std::move(result), &topology, console);
    return code;
  }
  stream << report::write_summary(document, timeline, topology, style)
         << report::other_replicas_text(document.prediction, finding.made.evaluation.otherwise)
         << report::jitter_text(document.prediction) << choice_text(finding.made)
         << frugal_text(finding.made, style) << blocking_text(request, document)
         << (finding.scaling ? text_of(*finding.scaling, style) : std::string());
  if (finding.other_orders) stream << order_gap_text(*finding.other_orders, style);
  if (request.explains) {
    stream << '\n'
           << report::write_time_parts(document, style)
           << sensitivity_text(finding.sensitivities, document.prediction.iteration, style);
  }
  if (finding.alternatives) {
    stream << '\n' << alternatives_text(*finding.alternatives, document, style);
  }
  command_line::print_warnings_if_quiet(console, document.warnings);
  if (trace && *trace != "-") stream << "trace written to " << printable(*trace) << '\n';
  if (finding.proof.proof && *request.proof != "-") {
    stream << "proof written to " << printable(*request.proof) << '\n';
  }
  if (output != "-") stream << "plan written to " << printable(output) << '\n';
  return code;
}

/// Says why there is no plan: to people, and to programs if a result was asked for.
int report_no_plan(const planner::Infeasible& infeasible, const PlanCommandRequest& request,
                   const SearchInputs& inputs, const Topology& topology,
                   const std::vector<Sensitivity>& sensitivities, command_line::Console& console) {
  io::NoPlanResult reasons = no_plan_result(infeasible, inputs.profile, topology);
  console.err << no_plan_text(reasons, inputs.profile.name, inputs.topology.name,
                              console.err_style);
  if (!sensitivities.empty()) {
    console.err << sensitivity_text(sensitivities, std::nullopt, console.err_style);
  }
  if (request.is_json) {
    print_result(
        {.command = "plan", .exit_code = command_line::kInfeasible, .no_plan = std::move(reasons)},
        nullptr, console);
  }
  return command_line::kInfeasible;
}

int plan_and_write(const PlanCommandRequest& request, command_line::Console& console) {
  planner::PlannerOptions planner = request.planner;
  log_limits(planner);
  const SearchInputs inputs = load_inputs(request);
  planner.global_batch_size = global_batch_of(request, inputs.profile);
  check_plan_outputs(request, inputs.profile);
  const Topology topology{inputs.topology, command_line::source_name(request.topology)};
  check_suited(request, inputs.profile, topology, planner.global_batch_size);
  planner.pins = pins_of(request, inputs.profile, topology);
  suit_contention(inputs.profile, topology, planner);
  std::optional<planner::PlanRestriction> restriction;
  if (request.target) restriction = restriction_of(*request.target, planner, inputs.profile);
  // Signals are caught while it exists, until all searches are done.
  std::optional<ProgressLine> progress{std::in_place, console, request.time_limit};
  SearchEnd end = search(inputs, topology, planner, restriction, *progress);
  std::optional<std::string> other_orders;
  if (const auto* made = std::get_if<planner::MadePlan>(&end.result);
      made != nullptr && request.compares_orders && !request.is_json) {
    const Topology of_plan{made->document.topology};
    other_orders = compare_orders(made->document, of_plan, request.planner, *progress);
  }
  std::vector<Sensitivity> sensitivities;
  if (request.explains && end.stop_reason != StopReason::Signal) {
    const bool fits = std::holds_alternative<planner::MadePlan>(end.result);
    sensitivities =
        search_with_each(changed_inputs(request, inputs, fits), request, planner, *progress);
  }
  progress.reset();
  if (const auto* infeasible = std::get_if<planner::Infeasible>(&end.result)) {
    PlanDocument closest;
    set_inputs(closest, inputs.profile, topology, infeasible->parallelism,
               command_line::source_name(request.topology));
    return report_no_plan(*infeasible, request, inputs, Topology{closest.topology}, sensitivities,
                          console);
  }
  planner::MadePlan made = std::get<planner::MadePlan>(std::move(end.result));
  const Topology of_plan{made.document.topology};
  complete_document(made, inputs, end.stop_reason, request.time_limit);
  std::optional<AlternativesEnd> alternatives;
  const bool is_interrupted = end.stop_reason == StopReason::Signal;
  if (request.alternatives && is_interrupted) {
    alternatives = AlternativesEnd{.found = {}, .was_interrupted = true};
  } else if (request.alternatives) {
    ProgressLine others{console, request.time_limit};
    alternatives = find_alternatives({made.document, inputs, topology, planner, restriction},
                                     static_cast<std::size_t>(*request.alternatives),
                                     request.time_limit, others);
  }
  ProofEnd proof;
  if (request.proof && is_interrupted) {
    proof.why_not = "the search was interrupted";
  } else if (request.proof) {
    ProgressLine of_proof{console, std::nullopt};
    proof = prove(made.document, of_plan, restriction, of_proof);
  }
  return write_outputs(
      {made, end.scaling, of_plan, sensitivities, proof, alternatives, other_orders}, request,
      console);
}

int run_plan(const command_line::Options& options, command_line::Console& console) {
  const PlanCommandRequest request = plan_request(options);
  return run_with_result("plan", request.is_json, console,
                         [&] { return plan_and_write(request, console); });
}

}  // namespace

command_line::Command plan_command() {
  return {
      .description =
          {.name = "plan",
           .summary = "search for the fastest plan that fits memory",
           .usage = {"dapple-plan [plan] --model PROFILE --topo TOPOLOGY [options]"},
           .details = {"A plan says which layers form which pipeline stage, on which devices and "
                       "with how many replicas, the size of micro-batches, and the schedule. It "
                       "is chosen by simulating candidates event by event, with the lowest bounds "
                       "first, until the bound of all others is met.",
                       "If no plan fits, the message names the device that lacks most memory, "
                       "and what would help."},
           .options = plan_options(),
           .examples = {"dapple-plan --model profiles/bert-48.json --topo "
                        "topologies/2x8xV100.json"},
           .exit_codes = {{command_line::kInfeasible, "no plan fits"},
                          {command_line::kNotVerified, "a plan is written, but no --proof of it"}},
           .files = {{"MODEL.plan.json",
                      "The plan (dapple-plan/1), in the current folder, MODEL being the name of "
                      "the model."}}},
      .run = run_plan};
}

}  // namespace dapple::app
