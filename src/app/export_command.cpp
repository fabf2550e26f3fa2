#include <fmt/format.h>

#include <ostream>
#include <utility>

#include "commands.h"
#include "dapple/interop/exports.h"
#include "dapple/report/show.h"
#include "inputs.h"

namespace dapple {
namespace {

constexpr const char* kHelp =
    R"(dapple-plan export: a plan as another runtime or launcher takes it.

Usage: dapple-plan export PLAN --to TARGET [-o FILE]

  --to megatron         options of Megatron-LM, with its layout of blocks
  --to deepspeed        a PipelineModule of DeepSpeed and its settings
  --to torch-csv        the order for PyTorch's pipelining runtime
  --to torchtitan       options of torchtitan, to go with torch-csv
  --to rankfile         placement for Open MPI's --rankfile
  --to hostfile         servers and their slots, in the order of ranks
  --to visible-devices  a wrapper that gives each rank its GPU
  -o, --output FILE     "-" is stdout               (default: by the model's name)

What the target cannot express is an error that names it: replicas that differ
from stage to stage, orders or depths that it does not have. Ranks go stage by
stage, replica by replica.

Example
  dapple-plan export bert-48.plan.json --to megatron

Exit code 3 if the target cannot express the plan.
)";

const ExportTarget& target_of(const Options& options) {
  std::vector<std::string> names;
  for (const ExportTarget& target : export_targets()) names.emplace_back(target.name);
  options.required("to",
                   "one of megatron, deepspeed, torch-csv, torchtitan, rankfile, hostfile "
                   "and visible-devices");
  const std::string name = options.choice("to", names);
  for (const ExportTarget& target : export_targets()) {
    if (target.name == name) return target;
  }
  throw Bug("a choice that is none of the targets");
}

/// The fault is the plan's, for that target.
Export make(const ExportTarget& target, const ExportSubject& subject, const std::string& source) {
  try {
    return target.make(subject);
  } catch (const Error& error) { throw Error{error.kind(), source, error.violations()}; }
}

int run_export(const Options& options, Console& console) {
  if (options.positional().size() != 1) {
    throw usage_error("export",
                      fmt::format("expected one plan file, got {}", options.positional().size()));
  }
  const std::string& path = options.positional().front();
  const ExportTarget& target = target_of(options);
  const Subject subject = make_subject(load_plan(path), {}, source_name(path));
  const std::string output = options.text("output").value_or(
      default_output(subject.document.profile, std::string(target.ending)));
  check_outputs({{"--output", output}}, {{"the plan", path}});
  const Export made = make(target, {subject.document, subject.topology}, source_name(path));
  write_result(console, output, made.text);
  for (const std::string& warning : made.warnings) {
    console.err << "warning: " << printable(warning) << '\n';
  }
  if (output != "-") console.out << target.what << " written to " << printable(output) << '\n';
  return kDone;
}

}  // namespace

Command export_command() {
  return {.name = "export",
          .help = kHelp,
          .options = {{.name = "to"}, {.name = "output", .letter = 'o'}},
          .run = run_export};
}

}  // namespace dapple
