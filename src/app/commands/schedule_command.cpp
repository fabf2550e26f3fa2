#include <fmt/format.h>

#include <ostream>
#include <utility>

#include "app/commands/commands.h"
#include "app/request/inputs.h"
#include "dapple/command_line/files.h"
#include "dapple/cost/cost_model.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/documents/schedule_document.h"
#include "dapple/schedule/schedule.h"

namespace dapple::app {
namespace {

int run_schedule(const command_line::Options& options, command_line::Console& console) {
  if (options.positional().size() != 1) {
    throw command_line::usage_error(
        "schedule", fmt::format("expected one plan file, got {}", options.positional().size()));
  }
  const std::string format = options.choice("format");
  const std::string& path = options.positional().front();
  const Subject subject = make_subject(load_own_plan(path), {}, command_line::source_name(path));
  const Schedule schedule = generate(subject.document.plan);
  if (format == "text") {
    console.documents << to_text(schedule, subject.topology);
    return command_line::kDone;
  }
  const CostModel model{subject.document.profile, subject.topology};
  const PlanCost costs = model.plan_cost(subject.document.plan);
  const io::ScheduleDocument document{
      .tool = kTool,
      .plan_sha256 = io::hash_of(subject.document),
      .digest = io::schedule_digest(subject.document.plan, subject.topology),
      .schedule = schedule,
      .costs = costs};
  command_line::write_result(console, "-",
                             format == "json" ? io::write_schedule(document, subject.topology)
                                              : io::write_schedule_csv(document, subject.topology));
  return command_line::kDone;
}

}  // namespace

command_line::Command schedule_command() {
  return {
      .description =
          {.name = "schedule",
           .summary = "print a plan's action lists, for another runtime",
           .usage = {"dapple-plan schedule PLAN [--format text|csv|json]"},
           .about = "The lists go to stdout. As text there is a line for each device, such as "
                    "\"node0:0: 0F0 0SEND_F0 0F1 ...\": 0F1 is the forward of micro-batch 1 on "
                    "stage 0, B a backward, I and W its two parts where they are run apart. SEND_F "
                    "and RECV_F pass activations, SEND_B and RECV_B gradients. REDUCE_GRADk is the "
                    "all-reduce of bucket k, or its reduce-scatter where the optimizer's state is "
                    "sharded, REDUCE_TIEDk that of gradients which several stages hold, and STEP "
                    "is the optimizer, with the all-gather of sharded updates.",
           .details = {"CSV has one row for each action, with stream, peers and sizes in bytes; "
                       "JSON (dapple-schedule/1) has the same for each device. A PLAN of \"-\" is "
                       "stdin."},
           .takes_files = true,
           .options = {{"",
                        {{.name = "format",
                          .value = "FORMAT",
                          .choices = {"text", "csv", "json"},
                          .text = "Print the lists as {}.",
                          .default_value = "text"}}}},
           .examples =
               {"dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json",
                "dapple-plan schedule bert-large.plan.json --format json > schedule.json"}},
      .run = run_schedule};
}

}  // namespace dapple::app
