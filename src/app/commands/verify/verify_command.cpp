#include <fmt/format.h>

#include "app/commands/commands.h"
#include "app/commands/json_result.h"
#include "app/commands/verify/verify_file.h"
#include "app/request/modes.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/files/read_file.h"

namespace dapple::app {
namespace {

VerifyRequest verify_request(const command_line::Options& options) {
  if (options.positional().size() != 1) {
    throw command_line::usage_error(
        "verify", fmt::format("expected one file, got {}", options.positional().size()));
  }
  VerifyRequest request{.file = options.positional().front(),
                        .proof = options.text("proof"),
                        .time_limit = options.positive_seconds("time-limit"),
                        .is_json = options.has("json")};
  if (const auto budget = options.positive_integer("budget", kMaxCount)) request.budget = *budget;
  return request;
}

int verify_file(const VerifyRequest& request, command_line::Console& console) {
  const std::string text = io::read_file(request.file);
  const bool is_trade_off = io::document_kind(text) == "trade-off";
  if (is_trade_off && request.proof) {
    throw command_line::usage_error("--proof", "expected only with a plan, got a certificate");
  }
  return is_trade_off ? verify_trade_off(request, text, console)
                      : verify_plan(request, text, console);
}

int run_verify(const command_line::Options& options, command_line::Console& console) {
  const VerifyRequest request = verify_request(options);
  return run_with_result("verify", request.is_json, console,
                         [&] { return verify_file(request, console); });
}

}  // namespace

command_line::Command verify_command() {
  return {
      .description =
          {.name = "verify",
           .summary = "check what a plan file claims",
           .usage = {"dapple-plan verify FILE [options]"},
           .about = "FILE is a plan, or the certificate that pareto writes. The plan is simulated "
                    "anew and every predicted figure compared, to the nanosecond and the byte. The "
                    "bound is derived anew, or its proof checked. A claim that is false is a line "
                    "\"error: FILE: /json/pointer: expected X, got Y\" on stderr.",
           .details = {"The baselines, the warnings and what the file says of its search are made "
                       "anew from the request that the file records. The bound is derived by "
                       "trying every plan that could be faster. Where there are too many, relaxed "
                       "decision diagrams of all plans are made and the exact search for a faster "
                       "plan is repeated or, where these take too long, the bound is that of the "
                       "work that every plan has. What could not be derived is stated.",
                       "A larger budget may confirm a bound that a smaller one does not. A FILE of "
                       "\"-\" is stdin.",
                       "Every plan of a certificate is verified so, and where none was found the "
                       "search is repeated; which plans are on the front, which one is chosen and "
                       "what is proven of all of them follow from the plans."},
           .takes_files = true,
           .options = {{"",
                        {{.name = "proof",
                          .value = "FILE",
                          .kind = command_line::ValueKind::File,
                          .text = "Check the proof of the bound that plan --proof wrote.",
                          .details = "Each of its nodes is checked against every stage that may "
                                     "stand in front of it. The search is repeated for what else "
                                     "the plan's file says of it, however long that takes."},
                         {.name = "budget",
                          .value = "N",
                          .text = "Try at most N partial plans for each form of parallelism.",
                          .default_value = fmt::format("{}", planner::kVerificationBudget)},
                         {.name = "time-limit",
                          .value = "SECONDS",
                          .text = "Stop after SECONDS, as Ctrl-C does.",
                          .default_value = "no limit"},
                         json_option()}}},
           .examples = {"dapple-plan --model profiles/bert-48.json --topo "
                        "topologies/2x8xV100.json \\",
                        "    --micro-batch 8", "dapple-plan verify bert-48.plan.json"},
           .exit_codes = {{command_line::kDone, "nothing is false and the bound is confirmed"},
                          {command_line::kBadInput, "a claim is false or the plan is not sound"},
                          {command_line::kNotVerified,
                           "nothing is false, but not all is confirmed"}}},
      .run = run_verify};
}

}  // namespace dapple::app
