#include <fmt/format.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/measured_diff.h"
#include "app/request/inputs.h"
#include "app/request/modes.h"
#include "app/request/runtimes.h"
#include "dapple/io/documents/comparison_document.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/files/read_file.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/report/comparison.h"

namespace dapple::app {
namespace {

/// Returns the mode given by options, or else that of both plans, or else the default where they
/// differ.
SimulationMode mode_of(const DiffRequest& request, const Prediction& first,
                       const Prediction& second) {
  const bool same_contention = first.contention == second.contention;
  const bool same_replicas = first.replicas == second.replicas;
  const bool same_transfers = first.transfers == second.transfers;
  return {request.contention.value_or(same_contention ? first.contention
                                                      : Contention::SharedWithCollectives),
          request.replicas.value_or(same_replicas ? first.replicas : Replicas::Together),
          same_transfers ? first.transfers : Transfers::Overlapped};
}

/// Whether each plan is simulated with its own transfers: both are for one runtime, which may send
/// otherwise under another schedule.
bool has_transfers_of_each(const PlanDocument& first, const PlanDocument& second) {
  return first.runtime && first.runtime == second.runtime;
}

/// What B is costed with, and notes if B was made from something else.
struct CommonGround {
  Replacement replacement;
  std::vector<std::string> notes;
};

CommonGround common_ground(const Replacement& given, const PlanDocument& first,
                           const PlanDocument& second) {
  CommonGround common{.replacement = given, .notes = {}};
  const auto note = [&common](const char* what, const std::string& hash, const char* option) {
    common.notes.push_back(
        fmt::format("both are costed with A's {0}; B was made from another (sha256 {1}...), which "
                    "{2} would take instead",
                    what, hash.substr(0, 12), option));
  };
  const std::string model = io::hash_of(second.original_profile());
  if (!given.profile && io::hash_of(first.original_profile()) != model) {
    common.replacement.profile = first.original_profile();
    note("model", model, "--model");
  }
  const std::string topology = io::hash_of(second.original_topology());
  if (!given.topology && io::hash_of(first.original_topology()) != topology) {
    common.replacement.topology = first.original_topology();
    note("topology", topology, "--topo");
  }
  return common;
}

/// Returns what is said where the plans are for different runtimes, which they are not simulated
/// as.
std::vector<std::string> notes_on_runtimes(const PlanDocument& first, const PlanDocument& second) {
  std::vector<std::string> notes;
  const auto name_of = [](const PlanDocument& document) {
    return document.runtime ? printable(document.runtime->name) : std::string("none in particular");
  };
  if (first.runtime != second.runtime) {
    notes.push_back(
        fmt::format("A is for the runtime {}, B for {}; models and topologies have what "
                    "runtimes keep in memory",
                    name_of(first), name_of(second)));
  }
  if (first.prediction.transfers != second.prediction.transfers) {
    notes.push_back(fmt::format(
        "{}those of A are {}, those of B {}",
        has_transfers_of_each(first, second) ? "transfers are as the runtime has them: "
                                             : "both are simulated with overlapped transfers; ",
        to_string(first.prediction.transfers), to_string(second.prediction.transfers)));
  }
  if (first.plan.gradients.overlaps != second.plan.gradients.overlaps) {
    notes.push_back(fmt::format(
        "gradients of {} are reduced after the last backward, those of {} "
        "during it",
        first.plan.gradients.overlaps ? "B" : "A", first.plan.gradients.overlaps ? "A" : "B"));
  }
  return notes;
}

/// Whether the devices of both plans are the same groups: the plans have one form of parallelism
/// whatever they recompute or, where stages differ, forms with groups of one size on one topology.
bool have_alike_groups(const Plan& a, const Plan& b) {
  if (a.stage_forms.empty() && b.stage_forms.empty()) {
    return without_recomputation(a.parallelism) == without_recomputation(b.parallelism);
  }
  return a.parallelism.group_size() == b.parallelism.group_size() &&
         a.parallelism.shards_over_replicas() == b.parallelism.shards_over_replicas();
}

int diff_plans(const DiffRequest& request, const std::string& second_text,
               command_line::Console& console) {
  PlanDocument first = load_own_plan(request.first);
  PlanDocument second = own_plan(second_text, request.second);
  const SimulationMode mode = mode_of(request, first.prediction, second.prediction);
  const bool is_of_each = has_transfers_of_each(first, second);
  const Replacement given = load_replacement(request.model, request.topology);
  CommonGround common = common_ground(given, first, second);
  for (std::string& note : notes_on_runtimes(first, second))
    common.notes.push_back(std::move(note));
  Subject a = make_subject(std::move(first), given, command_line::source_name(request.first));
  Subject b = make_subject(std::move(second), common.replacement,
                           command_line::source_name(request.second));
  for (const auto& [subject, path] : {std::pair{&a, request.first}, {&b, request.second}}) {
    const Plan& plan = subject->document.plan;
    if (has_larger_groups(plan)) check_mode(plan, mode, command_line::source_name(path));
  }
  const auto predict = [&](const Subject& subject) {
    Plan plan = subject.document.plan;
    SimulationMode own = mode;
    if (is_of_each) own.transfers = subject.document.prediction.transfers;
    return planner::evaluate(plan, subject.document.profile, subject.topology, own).prediction;
  };
  ComparedPlan compared_a{.name = command_line::source_name(request.first),
                          .plan = a.document.plan,
                          .prediction = predict(a)};
  ComparedPlan compared_b{.name = command_line::source_name(request.second),
                          .plan = b.document.plan,
                          .prediction = predict(b)};
  const bool is_of_groups = have_alike_groups(compared_a.plan, compared_b.plan);
  const Topology devices{a.document.original_topology(), command_line::source_name(request.first)};
  if (!is_of_groups) {
    compared_a = on_single_devices(std::move(compared_a), a.topology, devices);
    compared_b = on_single_devices(std::move(compared_b), b.topology, devices);
  }
  const ComparedPair pair{
      .first = std::move(compared_a),
      .second = std::move(compared_b),
      .profile = is_of_groups ? a.document.profile : a.document.original_profile(),
      .topology = is_of_groups ? a.topology : devices,
      .notes = common.notes};
  if (request.is_json) {
    SimulationMode common_mode = pair.first.prediction.mode();
    common_mode.transfers = mode.transfers;
    console.documents << io::write_comparison_json(
        {.tool = kTool, .pair = pair, .mode = common_mode});
  } else {
    console.out << report::write_comparison(pair, console.out_style);
  }
  return command_line::kDone;
}

DiffRequest diff_request(const command_line::Options& options) {
  const std::vector<std::string>& paths = options.positional();
  if (paths.size() != 2) {
    throw command_line::usage_error("diff",
                                    fmt::format("expected two plan files, got {}", paths.size()));
  }
  return {.first = paths[0],
          .second = paths[1],
          .model = options.text("model"),
          .topology = options.text("topo"),
          .contention = contention_of(options),
          .replicas = replicas_of(options),
          .is_json = options.has("json")};
}

int run_diff(const command_line::Options& options, command_line::Console& console) {
  const DiffRequest request = diff_request(options);
  std::vector<command_line::NamedPath> inputs{{"A", request.first}, {"B", request.second}};
  if (request.model) inputs.push_back({"--model", *request.model});
  if (request.topology) inputs.push_back({"--topo", *request.topology});
  command_line::check_inputs(inputs);
  const std::string second_text = io::read_file(request.second);
  if (io::document_kind(second_text) == "timeline") {
    return diff_measured(request, second_text, console);
  }
  return diff_plans(request, second_text, console);
}

}  // namespace

command_line::Command diff_command() {
  return {
      .description =
          {.name = "diff",
           .summary = "compare two plans, or a plan with what was measured of it",
           .usage = {"dapple-plan diff A B [options]", "dapple-plan diff PLAN TIMELINE [options]"},
           .about = "Two plans are shown side by side, stage by stage and costed alike; a plan and "
                    "a timeline are compared action by action.",
           .details = {"Stages correspond by their layers, and devices by their names; plans with "
                       "groups of different devices are compared device by device. The figures "
                       "are simulated anew and are not the files'; a plan that cannot be costed "
                       "so is an error. One of the files may be \"-\", stdin."},
           .takes_files = true,
           .options = {{"",
                        {model_option("Cost both plans with this layer profile.", "A's"),
                         topology_option("Cost both plans with this topology.", "A's"),
                         contention_option("the plans', on where they differ"),
                         replicas_option("the plans', together where they differ"),
                         {.name = "json",
                          .text = "Print the comparison as JSON.",
                          .details = "Two plans are a dapple-comparison/1, and what was measured "
                                     "is a dapple-measurement/1."}}}},
           .examples =
               {"dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json",
                "dapple-plan reschedule bert-large.plan.json --schedule gpipe -o gpipe.json",
                "dapple-plan diff bert-large.plan.json gpipe.json",
                "dapple-plan diff bert-large.plan.json gpipe.json \\",
                "    --topo topologies/2x8xV100.json"},
           .exit_codes = {{command_line::kDone, "the plans were compared, even if they differ"}}},
      .run = run_diff};
}

}  // namespace dapple::app
