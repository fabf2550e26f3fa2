#include <fmt/format.h>

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "app/commands/commands.h"
#include "app/request/inputs.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/report/page.h"
#include "dapple/report/show.h"

namespace dapple::app {
namespace {

/// Adds a warning if the file's figures are not those of the plan's simulation.
void check_figures(PlanDocument& document, const Prediction& fresh) {
  const Prediction& filed = document.prediction;
  if (filed.iteration == fresh.iteration) return;
  document.warnings.push_back(
      fmt::format("the file states an iteration of {}, its plan takes {}; the figures are the "
                  "file's, the timeline is not",
                  report::show(filed.iteration), report::show(fresh.iteration)));
}

/// The most passes of a page. It contains every action of the timeline, about four for each pass,
/// and the browser keeps all of them; a page of this many passes has about 90 MB.
constexpr std::int64_t kMostPassesOfAPage = 1'000'000;

void check_size_of_page(const PlanDocument& document, const std::string& source) {
  const auto stages = static_cast<std::int64_t>(document.plan.stages.size());
  const std::int64_t passes = stages * document.plan.num_micro_batches;
  if (passes <= kMostPassesOfAPage) return;
  throw Error{
      ErrorKind::BadInput,
      source,
      {{"/num_micro_batches",
        fmt::format("expected a page of at most {} passes of a micro-batch through a stage, "
                    "got {}; --svg draws any number, and simulate --timeline lists them",
                    kMostPassesOfAPage, passes)}}};
}

int run_report(const command_line::Options& options, command_line::Console& console) {
  if (options.positional().size() != 1) {
    throw command_line::usage_error(
        "report", fmt::format("expected one plan file, got {}", options.positional().size()));
  }
  const std::string& path = options.positional().front();
  Subject subject = make_subject(load_own_plan(path), {}, command_line::source_name(path));
  const std::optional<std::string> svg = options.text("svg");
  std::optional<std::string> page = options.text("output");
  if (!page && !svg) page = command_line::default_output(subject.document.profile, ".report.html");
  std::vector<command_line::NamedPath> outputs;
  if (page) outputs.push_back({"--output", *page});
  if (svg) outputs.push_back({"--svg", *svg});
  check_outputs(outputs, {{"the plan", path}});
  if (page) check_size_of_page(subject.document, command_line::source_name(path));

  const Prediction& filed = subject.document.prediction;
  const planner::Evaluation evaluation = planner::evaluate(
      subject.document.plan, subject.document.profile, subject.topology, filed.mode());
  check_figures(subject.document, evaluation.prediction);
  const report::ReportSubject drawn{
      .document = subject.document, .timeline = evaluation.timeline, .topology = subject.topology};
  command_line::Results results(console);
  if (page) results.add(*page, report::write_page(drawn));
  if (svg) results.add(*svg, report::write_figure(drawn));
  results.commit();
  std::ostream& words = console.words(command_line::takes_stdout(outputs)).stream;
  for (const command_line::NamedPath& output : outputs) {
    if (output.path == "-") continue;
    words << (output.option == "--svg" ? "figure" : "report") << " written to "
          << printable(output.path) << '\n';
  }
  return command_line::kDone;
}

}  // namespace

command_line::Command report_command() {
  return {
      .description =
          {.name = "report",
           .summary = "draw a plan and its timeline as a page for a browser",
           .usage = {"dapple-plan report PLAN [-o FILE] [--svg FILE]"},
           .about = "The page is one HTML file that needs no network. It has a timeline to zoom "
                    "into, memory and bytes in flight over time, stages, devices, idle time by "
                    "cause, and baselines. A PLAN of \"-\" is stdin.",
           .takes_files = true,
           .options = {{"",
                        {command_line::output_option("Write the page.",
                                                     "./MODEL.report.html, unless only --svg is "
                                                     "given"),
                         {.name = "svg",
                          .value = "FILE",
                          .kind = command_line::ValueKind::File,
                          .text = "Write the timeline as a figure for a paper.",
                          .details = "A file of that name is replaced; \"-\" is stdout."}}}},
           .examples =
               {"dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json",
                "dapple-plan report bert-large.plan.json -o bert.html --svg bert.svg"}},
      .run = run_report};
}

}  // namespace dapple::app
