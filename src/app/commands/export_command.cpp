#include <fmt/format.h>

#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/rank_order.h"
#include "app/request/for_target.h"
#include "app/request/inputs.h"
#include "dapple/interop/exports/exports.h"
#include "dapple/io/documents/documents.h"
#include "dapple/report/show.h"

namespace dapple::app {
namespace {

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const interop::ExportTarget& target : interop::export_targets())
    names.emplace_back(target.name);
  return names;
}

std::vector<command_line::Explanation> target_terms() {
  std::vector<command_line::Explanation> terms;
  for (const interop::ExportTarget& target : interop::export_targets())
    terms.push_back({std::string(target.name), std::string(target.what)});
  return terms;
}

const interop::ExportTarget& target_of(const command_line::Options& options) {
  options.required("to", fmt::format("a target (one of {})", fmt::join(target_names(), ", ")));
  const std::string name = target_given(options, "to");
  for (const interop::ExportTarget& target : interop::export_targets()) {
    if (target.name == name) return target;
  }
  throw Bug("a choice that is none of the targets");
}

const interop::ExportTarget& ranks_target() {
  for (const interop::ExportTarget& target : interop::export_targets()) {
    if (target.name == "ranks") return target;
  }
  throw Bug("no target for ranks");
}

/// Makes the export. Errors name the plan file, and the option that plans for the target.
interop::Export make(const interop::ExportTarget& target, const interop::ExportSubject& subject,
                     const std::string& source) {
  try {
    return interop::export_plan(target, subject);
  } catch (const Error& error) {
    if (target.limits == nullptr) throw Error{error.kind(), source, error.violations()};
    std::vector<Violation> faults = error.violations();
    faults.push_back({"", fmt::format("expected a plan that {} can express; dapple-plan --for {} "
                                      "makes the fastest one",
                                      target.limits->name, target.name)});
    throw Error{error.kind(), source, std::move(faults)};
  }
}

/// Returns the path of the wrapper that maps a launcher's ranks to the plan's, such as "a.ranks.sh"
/// beside "a.megatron.sh".
std::string ranks_beside(const std::string& output, const interop::ExportTarget& target) {
  const std::string stem = output.ends_with(target.ending)
                               ? output.substr(0, output.size() - target.ending.size())
                               : output;
  return stem + std::string(ranks_target().ending);
}

/// The files of one export: the target's, and the ranks' if their order makes a difference.
struct Outgoing {
  const interop::ExportTarget& target;
  const Subject& subject;
  std::string output;
  std::optional<std::string> loss;  // see loss_in_launchers_order()

  bool writes_ranks() const { return loss && output != "-"; }
};

void check_places(const Outgoing& outgoing, const std::vector<command_line::NamedPath>& inputs) {
  if (outgoing.target.is_folder) {
    command_line::check_output_folder({"--output", outgoing.output}, inputs);
    return;
  }
  std::vector<command_line::NamedPath> outputs{{"--output", outgoing.output}};
  if (outgoing.writes_ranks()) {
    outputs.push_back({"--output", ranks_beside(outgoing.output, outgoing.target)});
  }
  check_outputs(outputs, inputs);
}

void write_all(const Outgoing& outgoing, const interop::Export& made,
               command_line::Console& console) {
  const interop::ExportTarget& target = outgoing.target;
  const PlanDocument& document = outgoing.subject.document;
  if (target.is_folder) {
    io::write_folder(outgoing.output,
                     {std::string(target.name), io::hash_of(document), made.files});
    return;
  }
  command_line::Results results(console);
  results.add(outgoing.output, made.text);
  if (outgoing.writes_ranks()) {
    results.add(ranks_beside(outgoing.output, target),
                interop::export_plan(ranks_target(), {document, outgoing.subject.topology}).text);
  }
  results.commit();
}

void tell(const Outgoing& outgoing, const interop::Export& made, command_line::Console& console) {
  const interop::ExportTarget& target = outgoing.target;
  for (const std::string& warning : made.warnings) command_line::print_warning(console, warning);
  const std::string ranks = ranks_beside(outgoing.output, target);
  if (outgoing.loss) {
    command_line::print_warning(
        console,
        fmt::format("launchers number processes server by server, device by device; with "
                    "ranks in that order {}: {} gives each process the plan's rank",
                    *outgoing.loss, outgoing.writes_ranks() ? ranks : "what --to ranks writes"));
  }
  if (outgoing.output == "-") return;
  const std::string count =
      target.is_folder ? fmt::format(", {} files,", made.files.size()) : std::string();
  console.words(false).stream << target.what << count << " written to "
                              << printable(outgoing.output) << '\n';
  if (!outgoing.writes_ranks()) return;
  console.words(false).stream << ranks_target().what << " written to " << printable(ranks) << '\n';
}

int run_export(const command_line::Options& options, command_line::Console& console) {
  if (options.positional().size() != 1) {
    throw command_line::usage_error(
        "export", fmt::format("expected one plan file, got {}", options.positional().size()));
  }
  const std::string& path = options.positional().front();
  const interop::ExportTarget& target = target_of(options);
  const Subject subject = make_subject(load_own_plan(path), {}, command_line::source_name(path));
  check_forwarded(subject.document.plan, "exported plans send", command_line::source_name(path));
  const bool is_numbered = target.limits != nullptr && target.limits->numbers_ranks;
  const Outgoing outgoing{.target = target,
                          .subject = subject,
                          .output = options.text("output").value_or(command_line::default_output(
                              subject.document.profile, std::string(target.ending))),
                          .loss = is_numbered ? loss_in_launchers_order(subject) : std::nullopt};
  check_places(outgoing, {{"the plan", path}});
  const interop::Export made =
      make(target, {subject.document, subject.topology}, command_line::source_name(path));
  write_all(outgoing, made, console);
  tell(outgoing, made, console);
  return command_line::kDone;
}

}  // namespace

command_line::Command export_command() {
  return {
      .description =
          {.name = "export",
           .summary = "write a plan as another runtime or launcher takes it",
           .usage = {"dapple-plan export PLAN --to TARGET [-o PATH]"},
           .about = "What the target cannot express is an error that names it; planning with "
                    "\"--for TARGET\" leaves it out. A PLAN of \"-\" is stdin.",
           .details = {"Ranks go stage by stage, and replica by replica within a stage. Launchers "
                       "number processes server by server. Where a plan's ranks stand in another "
                       "order, and an iteration would take another time under the launcher's, that "
                       "is a warning, and a wrapper that gives each process the plan's rank is "
                       "written next to the file, with the ending .ranks.sh."},
           .terms_title = "Targets",
           .terms = target_terms(),
           .takes_files = true,
           .options = {{"",
                        {{.name = "to",
                          .value = "TARGET",
                          .choices = target_names(),
                          .text = "Write the plan for one of the targets.",
                          .details = "megatron may also be called megatron-lm."},
                         {.name = "output",
                          .letter = 'o',
                          .value = "PATH",
                          .kind = command_line::ValueKind::File,
                          .text = "Write to this file, or to this folder.",
                          .default_value = "by the model's name",
                          .details = "A file of that name is replaced, and so is a folder of an "
                                     "earlier export; \"-\" is stdout."}}}},
           .examples = {"dapple-plan --model profiles/bert-large.json --topo "
                        "topologies/8xV100.json \\",
                        "    --for megatron",
                        "dapple-plan export bert-large.plan.json --to megatron"},
           .exit_codes = {{command_line::kBadInput, "the target cannot express the plan"}}},
      .run = run_export};
}

}  // namespace dapple::app
