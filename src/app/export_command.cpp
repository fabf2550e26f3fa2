#include <fmt/format.h>

#include <filesystem>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
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

Usage: dapple-plan export PLAN --to TARGET [-o FILE]

  --to megatron         options of Megatron-LM, with its layout of blocks
  --to deepspeed        a PipelineModule of DeepSpeed and its settings
  --to torch-python     stages and order for PyTorch's pipelining runtime
  --to torch-csv        the order alone
  --to torchtitan       options of torchtitan, to go with torch-csv
  --to colossalai       arguments of ColossalAI's HybridParallelPlugin
  --to pipedream        a configuration of PipeDream's runtime
  --to sailor           a plan as Sailor writes it
  --to chakra           execution traces for ASTRA-sim: the groups of ranks as
                        the file, and FILE.RANK.et beside it
  --to rankfile         placement for Open MPI's --rankfile
  --to hostfile         servers and their slots, in the order of ranks
  --to visible-devices  a wrapper that gives each rank its GPU
  -o, --output FILE     "-" is stdout             (default: by the model's name)

What the target cannot express is an error that names it: replicas that differ
from stage to stage, orders or depths that it does not have; planning with
--for TARGET leaves it out. Ranks go stage by stage, replica by replica.

Example
  dapple-plan export bert-48.plan.json --to megatron

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

/// "a" of "a.groups.json": what the files beside it begin with.
std::string stem_of(const std::string& output, const ExportTarget& target) {
  return output.ends_with(target.ending) ? output.substr(0, output.size() - target.ending.size())
                                         : output;
}

/// Nothing is written where some of it cannot be.
std::vector<NamedPath> paths_of(const Export& made, const ExportTarget& target,
                                const std::string& output) {
  if (!made.files.empty() && output == "-") {
    throw usage_error("--output", fmt::format("expected the name of a file, as {} are several, got "
                                              "\"-\"",
                                              target.name));
  }
  std::vector<NamedPath> paths{{"--output", output}};
  for (const ExportFile& file : made.files) {
    paths.push_back({"--output", stem_of(output, target) + file.ending});
  }
  return paths;
}

void write_together(const Export& made, const std::vector<NamedPath>& paths) {
  std::vector<FileText> files{{paths.front().path, made.text}};
  for (std::size_t i = 0; i < made.files.size(); ++i) {
    files.push_back({paths[i + 1].path, made.files[i].text});
  }
  write_files(files);
}

/// "trace.17.et" where the stem is "trace".
bool is_trace(const std::string& name, const std::string& stem) {
  constexpr std::string_view kEnding = ".et";
  const std::size_t begin = stem.size() + 1;
  if (!name.starts_with(stem + '.') || !name.ends_with(kEnding)) return false;
  const std::size_t end = name.size() - kEnding.size();
  return begin < end && name.find_first_not_of("0123456789", begin) == end;
}

/// Files of ranks that the plan does not have, of an export with more of them: whoever reads all
/// that are there would take them for this plan's.
std::size_t remove_stale(const Export& made, const std::filesystem::path& stem) {
  namespace fs = std::filesystem;
  if (made.files.empty()) return 0;
  const std::string beginning = stem.filename().string();
  std::set<std::string> own;
  for (const ExportFile& file : made.files) own.insert(beginning + file.ending);
  std::vector<fs::path> stale;
  std::error_code fault;
  const fs::path folder = stem.has_parent_path() ? stem.parent_path() : ".";
  for (fs::directory_iterator entry(folder, fault), end; !fault && entry != end;
       entry.increment(fault)) {
    const std::string name = entry->path().filename().string();
    const bool is_stale = is_trace(name, beginning) && own.count(name) == 0;
    if (is_stale && entry->is_regular_file(fault)) stale.push_back(entry->path());
  }
  std::erase_if(stale, [&](const fs::path& file) { return !fs::remove(file, fault); });
  return stale.size();
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
  const Export made = make(target, {subject.document, subject.topology}, source_name(path));
  const std::vector<NamedPath> paths = paths_of(made, target, output);
  check_outputs(paths, {{"the plan", path}});
  if (made.files.empty()) {
    write_result(console, output, made.text);
  } else {
    write_together(made, paths);
  }
  for (const std::string& warning : made.warnings) print_warning(console, warning);
  const std::size_t stale = remove_stale(made, stem_of(output, target));
  if (stale > 0) {
    console.out << stale << (stale == 1 ? " file" : " files") << " of an earlier export removed\n";
  }
  if (!made.files.empty()) {
    console.out << made.files.size() << " files " << printable(stem_of(output, target))
                << ".RANK.et written\n";
  }
  if (output != "-") console.out << target.what << " written to " << printable(output) << '\n';
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
