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

constexpr const char* kScheduleHelp =
    R"(dapple-plan schedule: a plan's action lists, for another runtime.

Usage: dapple-plan schedule PLAN [--format text|csv|json]

  --format text   one line per device: "node0:0: 0F0 0SEND_F0 0F1 ..."
                  <stage>F<n> forward of micro-batch n, B backward,
                  I and W its two parts where they are run apart,
                  SEND_F RECV_F activations, SEND_B RECV_B gradients,
                  REDUCE_GRAD<k> all-reduce of bucket k, REDUCE_TIED<k> of
                  gradients that several stages hold, STEP the optimizer
                  (the default)
  --format csv    one row per action, with stream, peers and sizes in bytes
  --format json   dapple-schedule/1: the same, per device
PLAN of "-" is stdin; the lists go to stdout.

Example
  dapple-plan --model profiles/bert-large.json --topo topologies/8xV100.json
  dapple-plan schedule bert-large.plan.json --format json > schedule.json
)";

int run_schedule(const command_line::Options& options, command_line::Console& console) {
  if (options.positional().size() != 1) {
    throw command_line::usage_error(
        "schedule", fmt::format("expected one plan file, got {}", options.positional().size()));
  }
  const std::string format = options.choice("format", {"text", "csv", "json"});
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
  return {.name = "schedule",
          .help = kScheduleHelp,
          .options = {{.name = "format"}},
          .run = run_schedule};
}

}  // namespace dapple::app
