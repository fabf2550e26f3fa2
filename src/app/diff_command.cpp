#include <fmt/format.h>

#include <ostream>
#include <utility>

#include "commands.h"
#include "dapple/io/documents.h"
#include "dapple/planner/planner.h"
#include "dapple/report/comparison.h"
#include "inputs.h"
#include "measured_diff.h"
#include "modes.h"

namespace dapple {
namespace {

constexpr const char* kHelp =
    R"(dapple-plan diff: two plans side by side, stage by stage, costed alike;
or a plan and what was measured of it, action by action.

Usage: dapple-plan diff A B [options]
       dapple-plan diff PLAN TIMELINE [options]

  --model FILE         layer profile to cost both with  (default: the plans')
  --topo FILE          topology to cost both with       (default: the plans')
  --contention on|off  transfers share links or not
                       (default: the plans', on where they differ)
  --replicas WAY       of a stage: together or independent
                       (default: the plans', together where they differ)
Without --model or --topo both plans must have been made from the same one.
Devices are matched by name. The figures are simulated anew, not the files'.

Examples
  dapple-plan diff bert-48.plan.json my.plan.json
  dapple-plan diff old.json new.json --topo topologies/2x8xV100.json
  dapple-plan diff bert-48.plan.json measured.json

Exit code 0 when compared, whether they differ or not.
)";

/// As the options say, else as both plans were simulated, else the usual way.
SimulationMode mode_of(const Options& options, const Prediction& first, const Prediction& second) {
  const bool same_contention = first.contention == second.contention;
  const bool same_replicas = first.replicas == second.replicas;
  return {contention_of(options, same_contention ? first.contention : Contention::Shared),
          replicas_of(options, same_replicas ? first.replicas : Replicas::Together)};
}

/// What both plans are costed with: the same in both, unless an option gives it.
struct CommonPart {
  const char* what;
  const char* option;
  bool is_given = false;
  std::string first_hash;
  std::string second_hash;
};

void require_common(const CommonPart& part, const std::vector<std::string>& paths) {
  if (part.is_given || part.first_hash == part.second_hash) return;
  throw Error{ErrorKind::BadInput,
              source_name(paths[1]),
              {{"", fmt::format("expected the {} of {} (sha256 {}...), got another (sha256 {}...); "
                                "pass {} to cost both plans with one",
                                part.what, source_name(paths[0]), part.first_hash.substr(0, 12),
                                part.second_hash.substr(0, 12), part.option)}}};
}

int run_diff(const Options& options, Console& console) {
  const std::vector<std::string>& paths = options.positional();
  if (paths.size() != 2) {
    throw usage_error("diff", fmt::format("expected two plan files, got {}", paths.size()));
  }
  if (paths[0] == "-" && paths[1] == "-") {
    throw usage_error("diff", "expected two plan files, got \"-\" for both");
  }
  const std::string second_text = read_file(paths[1]);
  if (document_kind(second_text) == "timeline") {
    return diff_measured(paths[0], {.path = paths[1], .text = second_text}, options, console);
  }
  PlanDocument first = load_plan(paths[0]);
  PlanDocument second = read_plan(second_text, source_name(paths[1]));
  const SimulationMode mode = mode_of(options, first.prediction, second.prediction);
  const Replacement replacement = load_replacement(options);
  require_common({.what = "model",
                  .option = "--model",
                  .is_given = replacement.profile.has_value(),
                  .first_hash = hash_of(first.profile),
                  .second_hash = hash_of(second.profile)},
                 paths);
  require_common({.what = "topology",
                  .option = "--topo",
                  .is_given = replacement.topology.has_value(),
                  .first_hash = hash_of(first.topology),
                  .second_hash = hash_of(second.topology)},
                 paths);
  Subject a = make_subject(std::move(first), replacement, source_name(paths[0]));
  Subject b = make_subject(std::move(second), replacement, source_name(paths[1]));
  PlanComparison comparison =
      compare_plans(a.document.plan, b.document.plan,
                    {.profile = a.document.profile, .topology = a.topology, .mode = mode});
  const auto compared = [](const std::string& path, Subject& subject, Prediction& prediction) {
    return ComparedPlan{.name = source_name(path),
                        .plan = std::move(subject.document.plan),
                        .prediction = std::move(prediction)};
  };
  console.out << write_comparison({.first = compared(paths[0], a, comparison.first),
                                   .second = compared(paths[1], b, comparison.second),
                                   .profile = a.document.profile,
                                   .topology = a.topology},
                                  console.out_style);
  return kDone;
}

}  // namespace

Command diff_command() {
  return {.name = "diff",
          .help = kHelp,
          .options = {{.name = "model"},
                      {.name = "topo"},
                      {.name = "contention"},
                      {.name = "replicas"}},
          .run = run_diff};
}

}  // namespace dapple
