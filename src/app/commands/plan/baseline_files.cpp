#include "app/commands/plan/baseline_files.h"

#include <fmt/format.h>

#include <iterator>
#include <ostream>
#include <utility>

#include "app/commands/plan/plan_folder.h"
#include "app/request/groups.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/record_text.h"
#include "dapple/plan/warning_text.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple::app {
namespace {

PlanDocument document_of(const planner::BaselinePlan& baseline, const planner::MadePlan& made,
                         const Topology& topology_of_plan) {
  PlanDocument document = made.document;
  const SimulationMode mode = document.prediction.mode();
  document.plan = baseline.plan;
  document.plan.parallelism = made.document.plan.parallelism;
  const bool has_own_form = baseline.figures.name == planner::kBestUniformName;
  if (has_own_form || !made.document.plan.stage_forms.empty()) {
    const ModelProfile profile = made.document.original_profile();
    set_inputs(document, profile, Topology{made.document.original_topology()},
               has_own_form ? baseline.plan.parallelism : made.document.plan.parallelism, "");
  }
  const Topology topology = has_own_form ? Topology{document.topology} : topology_of_plan;
  const planner::Evaluation evaluation =
      planner::evaluate(document.plan, document.profile, topology, mode);
  document.prediction = evaluation.prediction;
  // A baseline may have a schedule that the runtime has not.
  if (document.runtime && !runtime_faults(*document.runtime, document.plan, mode).empty()) {
    document.runtime.reset();
  }
  document.baselines.clear();
  document.schedules.clear();
  document.parallelisms.clear();
  document.request.reset();
  document.search = {};
  document.search.outside =
      outside_space(document.original_profile(), sharding_of(document.plan.parallelism),
                    !document.plan.stage_forms.empty());
  document.search.planner = baseline.figures.name;
  document.search.cut = {std::string{kCutOfBaseline}};
  document.warnings = planner::warnings_about(document, topology);
  if (!evaluation.shortages.empty()) {
    document.warnings.push_back(warning_of_missing(evaluation.shortages.front().missing()));
  }
  return document;
}

}  // namespace

void add_baseline_outputs(const std::string& directory,
                          std::vector<command_line::NamedPath>& outputs) {
  std::vector<std::string> names(std::begin(planner::kBaselineNames),
                                 std::end(planner::kBaselineNames));
  names.emplace_back(planner::kBestUniformName);
  add_folder_outputs("--write-baselines", directory, names, outputs);
}

void write_baselines(const std::string& directory, const planner::MadePlan& made,
                     const Topology& topology, command_line::Results& results) {
  results.add_folder(directory);
  for (const planner::BaselinePlan& baseline : made.baselines) {
    results.add(plan_file_in(directory, baseline.figures.name),
                io::write_plan(document_of(baseline, made, topology)));
  }
}

}  // namespace dapple::app
