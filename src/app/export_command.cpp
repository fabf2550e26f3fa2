#include <fmt/format.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "dapple/interop/exports.h"
#include "dapple/io/documents.h"
#include "dapple/report/show.h"
#include "inputs.h"

namespace dapple {
namespace {

constexpr const char* kExportHelp =
    R"(dapple-plan export: a plan as another runtime or launcher takes it.

Usage: dapple-plan export PLAN --to TARGET [-o PATH]

  --to megatron         options of Megatron-LM, with its layout of blocks
  --to deepspeed        a PipelineModule of DeepSpeed and its settings
  --to torch-python     stages and order for PyTorch's pipelining runtime
  --to torch-csv        the order alone
  --to torchtitan       options of torchtitan, to go with torch-csv
  --to colossalai       arguments of ColossalAI's HybridParallelPlugin
  --to pipedream        a configuration of PipeDream's runtime
  --to sailor           a plan as Sailor writes it
  --to chakra           a folder of execution traces for ASTRA-sim: groups.json
                        and trace.RANK.et
  --to rankfile         placement for Open MPI's --rankfile
  --to hostfile         servers and their slots, in the order of ranks
  --to visible-devices  a wrapper that gives each rank its GPU
  -o, --output PATH     file, "-" is stdout; or the folder, which replaces one
                        of an earlier export      (default: by the model's name)

What the target cannot express is an error that names it: replicas that differ
from stage to stage, orders or depths that it does not have; planning with
--for TARGET leaves it out. Ranks go stage by stage, replica by replica.

Example
  dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json \
    --for megatron
  dapple-plan export bert-large.plan.json --to megatron

Exit code 3 if the target cannot express the plan.
)";

const ExportTarget& target_of(const Options& options) {
  std::vector<std::string> names;
  for (const ExportTarget& target : export_targets()) names.emplace_back(target.name);
  options.required("to", fmt::format("one of {}", fmt::join(names, ", ")));
  const std::string name = options.choice("to", names);
  for (const ExportTarget& target : export_targets()) {
    if (target.name == name) return target;
  }
  throw Bug("a choice that is none of the targets");
}

/// The fault is the plan's, for that target; planning for it has none.
Export make(const ExportTarget& target, const ExportSubject& subject, const std::string& source) {
  try {
    return export_plan(target, subject);
  } catch (const Error& error) {
    if (target.limits == nullptr) throw Error{error.kind(), source, error.violations()};
    std::vector<Violation> faults = error.violations();
    faults.push_back({"", fmt::format("expected a plan that {} can express; dapple-plan --for {} "
                                      "makes the fastest one",
                                      target.limits->name, target.name)});
    throw Error{error.kind(), source, std::move(faults)};
  }
}

int run_export(const Options& options, Console& console) {
  if (options.positional().size() != 1) {
    throw usage_error("export",
                      fmt::format("expected one plan file, got {}", options.positional().size()));
  }
  const std::string& path = options.positional().front();
  const ExportTarget& target = target_of(options);
  const Subject subject = make_subject(load_own_plan(path), {}, source_name(path));
  const std::string output = options.text("output").value_or(
      default_output(subject.document.profile, std::string(target.ending)));
  const std::vector<NamedPath> inputs{{"the plan", path}};
  if (target.is_folder) {
    check_output_folder({"--output", output}, inputs);
  } else {
    check_outputs({{"--output", output}}, inputs);
  }
  const Export made = make(target, {subject.document, subject.topology}, source_name(path));
  if (target.is_folder) {
    write_folder(output, {std::string(target.name), hash_of(subject.document), made.files});
  } else {
    write_result(console, output, made.text);
  }
  for (const std::string& warning : made.warnings) print_warning(console, warning);
  if (output == "-") return kDone;
  const std::string count =
      target.is_folder ? fmt::format(", {} files,", made.files.size()) : std::string();
  console.out << target.what << count << " written to " << printable(output) << '\n';
  return kDone;
}

}  // namespace

Command export_command() {
  return {.name = "export",
          .help = kExportHelp,
          .options = {{.name = "to"}, {.name = "output", .letter = 'o'}},
          .run = run_export};
}

}  // namespace dapple
