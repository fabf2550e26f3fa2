#include <fmt/format.h>

#include <ostream>
#include <utility>

#include "commands.h"
#include "dapple/planner/verify.h"
#include "dapple/report/show.h"
#include "inputs.h"
#include "progress_line.h"

namespace dapple {
namespace {

constexpr const char* kVerifyHelp =
    R"(dapple-plan verify: check what a plan file claims.

Usage: dapple-plan verify PLAN [--time-limit SECONDS]

Simulates the plan anew and compares every predicted figure, to the nanosecond
and the byte; checks bound, gap and completeness against each other; and, where
the search left nothing out and the problem is small, derives the bound anew by
trying every plan that could be faster. What is not derived is said.
Deriving may take a minute; --time-limit or Ctrl-C ends it earlier.
A claim that is false is a line "error: FILE: /json/pointer: expected X, got Y"
on stderr. "-" is stdin.

Example
  dapple-plan verify bert-48.plan.json

Exit code 3 if a claim is false or the plan is not sound.
)";

std::string bound_verdict(const PlanDocument& document, const Verification& verification) {
  const auto& bound = document.prediction.lower_bound;
  const std::string stated =
      bound ? fmt::format("no plan takes less than {}", show(*bound)) : std::string{};
  const std::string work =
      fmt::format("{} partial plans, {} simulated", show_count(verification.partial_plans),
                  show_count(verification.simulated));
  switch (verification.bound) {
    case BoundCheck::NotStated:
      return "the file states no bound";
    case BoundCheck::NotComplete:
      return fmt::format("not checked: the file claims that {} of those that were allowed", stated);
    case BoundCheck::TooLarge:
      return fmt::format("not checked: the file claims that {}; given up after {}", stated, work);
    case BoundCheck::Holds:
      return fmt::format("derived anew: {} ({})", stated, work);
    case BoundCheck::HoldsOf1F1B:
      return fmt::format(
          "derived anew for 1f1b and gpipe only: {} ({}); not checked: that of the other schedules",
          stated, work);
    case BoundCheck::Refuted:
      break;  // told as a violation
  }
  return "false";
}

/// Nothing where every device has room.
std::string memory_text(const Prediction& prediction, const Topology& topology) {
  for (const DeviceFigures& device : prediction.devices) {
    if (device.peak_memory <= device.memory_limit) continue;
    return fmt::format("  memory   does not fit: {} needs {} and has {}\n",
                       topology.device(device.device).name, show(device.peak_memory),
                       show(device.memory_limit));
  }
  return {};
}

int run_verify(const Options& options, Console& console) {
  if (options.positional().size() != 1) {
    throw usage_error("verify",
                      fmt::format("expected one plan file, got {}", options.positional().size()));
  }
  const std::string& path = options.positional().front();
  const Subject subject = make_subject(load_own_plan(path), {}, source_name(path));
  Verification verification = [&] {
    ProgressLine progress{console, options.positive_seconds("time-limit")};
    return verify(subject.document, subject.topology, kVerificationBudget, &progress);
  }();
  if (!verification.violations.empty()) {
    throw Error{ErrorKind::BadInput, source_name(path), std::move(verification.violations)};
  }
  const Prediction& prediction = subject.document.prediction;
  const bool is_bound_checked =
      verification.bound == BoundCheck::NotStated || verification.bound == BoundCheck::Holds;
  console.out << fmt::format(
      "{}: {}: {} on {}\n"
      "  figures  iteration {}, {} stage{} and {} device{} as simulated anew\n"
      "{}  bound    {}\n",
      is_bound_checked ? "verified" : "figures verified, the bound not", source_name(path),
      printable(subject.document.profile.name), printable(subject.document.topology.name),
      show(prediction.iteration), prediction.stages.size(),
      prediction.stages.size() == 1 ? "" : "s", prediction.devices.size(),
      prediction.devices.size() == 1 ? "" : "s", memory_text(prediction, subject.topology),
      fill_lines(bound_verdict(subject.document, verification), 11, console.out_style));
  return kDone;
}

}  // namespace

Command verify_command() {
  return {.name = "verify",
          .help = kVerifyHelp,
          .options = {{.name = "time-limit"}},
          .run = run_verify};
}

}  // namespace dapple
