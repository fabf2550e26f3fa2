#include <fmt/format.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/measured_diff.h"
#include "app/request/inputs.h"
#include "app/request/modes.h"
#include "dapple/io/documents/comparison_document.h"
#include "dapple/io/documents/documents.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/report/comparison.h"

namespace dapple::app {
namespace {

constexpr const char* kDiffHelp =
    R"(dapple-plan diff: two plans side by side, stage by stage, costed alike;
or a plan and what was measured of it, action by action.

Usage: dapple-plan diff A B [options]
       dapple-plan diff PLAN TIMELINE [options]

  --model FILE         layer profile to cost both with  (default: A's)
  --topo FILE          topology to cost both with       (default: A's)
  --contention on|off  transfers share links or not
                       (default: the plans', on where they differ)
  --replicas WAY       of a stage: together or independent
                       (default: the plans', together where they differ)
  --json               two plans as dapple-comparison/1, what was measured as
                       dapple-measurement/1
One of the files may be "-", stdin.
Stages correspond by their layers, devices by their names. The figures are
simulated anew, not the files'; a plan that cannot be costed so is an error.

Examples
  dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json
  dapple-plan reschedule bert-large.plan.json --schedule gpipe -o gpipe.json
  dapple-plan diff bert-large.plan.json gpipe.json
  dapple-plan diff bert-large.plan.json gpipe.json \
      --topo topologies/2x8xV100.json

Exit code 0 when compared, whether they differ or not.
)";

/// Returns the mode given by options, or else that of both plans, or else the default where they
/// differ.
SimulationMode mode_of(const command_line::Options& options, const Prediction& first,
                       const Prediction& second) {
  const bool same_contention = first.contention == second.contention;
  const bool same_replicas = first.replicas == second.replicas;
  return {contention_of(options, same_contention ? first.contention : Contention::Shared),
          replicas_of(options, same_replicas ? first.replicas : Replicas::Together)};
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
  if (!given.profile && io::hash_of(first.profile) != io::hash_of(second.profile)) {
    common.replacement.profile = first.profile;
    note("model", io::hash_of(second.profile), "--model");
  }
  if (!given.topology && io::hash_of(first.topology) != io::hash_of(second.topology)) {
    common.replacement.topology = first.topology;
    note("topology", io::hash_of(second.topology), "--topo");
  }
  return common;
}

int diff_plans(const std::vector<std::string>& paths, const std::string& second_text,
               const command_line::Options& options, command_line::Console& console) {
  PlanDocument first = load_own_plan(paths[0]);
  PlanDocument second = own_plan(second_text, paths[1]);
  const SimulationMode mode = mode_of(options, first.prediction, second.prediction);
  const Replacement given = load_replacement(options);
  const CommonGround common = common_ground(given, first, second);
  Subject a = make_subject(std::move(first), given, command_line::source_name(paths[0]));
  Subject b =
      make_subject(std::move(second), common.replacement, command_line::source_name(paths[1]));
  const auto predict = [&](Plan plan) {
    return planner::evaluate(plan, a.document.profile, a.topology, mode).prediction;
  };
  Prediction first_prediction = predict(a.document.plan);
  Prediction second_prediction = predict(b.document.plan);
  const ComparedPair pair{.first = {.name = command_line::source_name(paths[0]),
                                    .plan = std::move(a.document.plan),
                                    .prediction = std::move(first_prediction)},
                          .second = {.name = command_line::source_name(paths[1]),
                                     .plan = std::move(b.document.plan),
                                     .prediction = std::move(second_prediction)},
                          .profile = a.document.profile,
                          .topology = a.topology,
                          .notes = common.notes};
  if (options.has("json")) {
    console.documents << io::write_comparison_json({.tool = kTool, .pair = pair, .mode = mode});
  } else {
    console.out << report::write_comparison(pair, console.out_style);
  }
  return command_line::kDone;
}

int run_diff(const command_line::Options& options, command_line::Console& console) {
  const std::vector<std::string>& paths = options.positional();
  if (paths.size() != 2) {
    throw command_line::usage_error("diff",
                                    fmt::format("expected two plan files, got {}", paths.size()));
  }
  std::vector<command_line::NamedPath> inputs =
      command_line::given_paths(options, {"model", "topo"});
  inputs.insert(inputs.begin(), {{"A", paths[0]}, {"B", paths[1]}});
  command_line::check_inputs(inputs);
  const std::string second_text = io::read_file(paths[1]);
  if (io::document_kind(second_text) == "timeline") {
    return diff_measured(paths[0], {.path = paths[1], .text = second_text}, options, console);
  }
  return diff_plans(paths, second_text, options, console);
}

}  // namespace

command_line::Command diff_command() {
  return {.name = "diff",
          .help = kDiffHelp,
          .options = {{.name = "model"},
                      {.name = "topo"},
                      {.name = "contention"},
                      {.name = "replicas"},
                      {.name = "json", .takes_value = false}},
          .run = run_diff};
}

}  // namespace dapple::app
