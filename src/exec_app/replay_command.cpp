#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "commands.h"
#include "dapple/command_line/files.h"
#include "dapple/core/error.h"
#include "dapple/cost/costs.h"
#include "dapple/exec/replay.h"
#include "dapple/io/documents.h"
#include "dapple/schedule/schedule.h"

namespace dapple {
namespace {

constexpr const char* kHelp =
    R"(dapple-exec replay: a plan with its real messages, and sleeping for computing.

Usage: dapple-exec replay --plan PLAN [options]

Every device is a thread that sleeps for as long as the plan says that it
computes, and sends real messages over links that let them pass no faster than
the topology's; what shares a link is not computed, it happens. Compares the
measured time of an iteration with the predicted.

  --plan FILE        a plan that dapple-plan wrote; "-" is stdin
  --iterations N     the median of them counts                   (default: 10)
  --pace X           everything takes X times longer, so that this machine can
                     keep up; what is told is divided by X again  (default: 1)
  --unpaced-links    messages pass as fast as this machine copies
  --timeout SECONDS  of every wait for another device           (default: 30)
  --timeline FILE    what was measured, as dapple-timeline/1
  --trace FILE       the same for chrome://tracing or ui.perfetto.dev
  -v, --verbose      what is done, on stderr
  -h, --help         this

Example
  dapple-exec replay --plan bert-48.plan.json --pace 2 --trace measured.json

Exit code: 0 done, 2 usage, 3 bad input, 5 files, or a device that does not
answer.
)";

ReplayOptions replay_options(const Options& options) {
  constexpr std::int64_t kMostIterations = 100'000;
  ReplayOptions replay;
  if (const auto n = options.positive_integer("iterations", kMostIterations))
    replay.iterations = *n;
  if (const auto pace = options.positive_factor("pace")) replay.pace = *pace;
  replay.paces_links = !options.has("unpaced-links");
  if (const auto timeout = options.positive_seconds("timeout")) {
    replay.timeout = std::chrono::nanoseconds(timeout->ns);
  }
  return replay;
}

/// Throws Error(BadInput) where the plan cannot be run; memory is not looked at.
void check_runnable(const PlanDocument& document, const Topology& topology,
                    const std::string& source) {
  std::vector<Violation> faults = costing_faults(document.plan, document.profile, topology);
  if (faults.empty()) faults = validate(generate(document.plan), document.plan);
  if (!faults.empty()) throw Error{ErrorKind::BadInput, source, std::move(faults)};
}

double milliseconds(Duration time) {
  return static_cast<double>(time.ns) * 1e-6;
}

void report(const PlanDocument& document, const ReplayOptions& replay, const Replayed& replayed,
            Console& console) {
  const Duration predicted = document.prediction.iteration;
  const auto [least, most] =
      std::minmax_element(replayed.iterations.begin(), replayed.iterations.end());
  const double ratio = static_cast<double>(replayed.median.ns) /
                       static_cast<double>(std::max<std::int64_t>(1, predicted.ns));
  console.out << fmt::format(
      "{} on {}, replayed on {} thread{}, {} iteration{}{}\n", document.profile.name,
      document.topology.name, replayed.timeline.lanes.size(),
      replayed.timeline.lanes.size() == 1 ? "" : "s", replayed.iterations.size(),
      replayed.iterations.size() == 1 ? "" : "s",
      replay.pace == kOne ? ""
                          : fmt::format(", {:g} times slower than told here",
                                        static_cast<double>(replay.pace.billionths) * 1e-9));
  console.out << fmt::format("  predicted  {:.3f} ms, simulated\n", milliseconds(predicted));
  console.out << fmt::format("  measured   {:.3f} ms, the median; {:.3f} to {:.3f} ms\n",
                             milliseconds(replayed.median), milliseconds(*least),
                             milliseconds(*most));
  console.out << fmt::format("  difference {:+.1f} %\n", 100 * (ratio - 1));
  console.out << fmt::format("  sent       {:.1f} MB per iteration\n",
                             static_cast<double>(replayed.sent.count) * 1e-6);
  constexpr double kKeptUp = 1.1;
  if (replay.paces_links && replayed.sent.count > 0 && ratio > kKeptUp) {
    console.err << fmt::format(
        "warning: this machine may not keep up with {:.1f} GB/s of messages: a larger "
        "--pace tells\n",
        static_cast<double>(replayed.sent.count) * 1e9 /
            static_cast<double>(replay.pace.billionths) /
            static_cast<double>(std::max<std::int64_t>(1, predicted.ns)));
  }
}

int run_replay(const Options& options, Console& console) {
  if (!options.positional().empty()) {
    throw usage_error(options.positional().front(), "expected options only");
  }
  const std::string path = options.required("plan", "a plan file");
  const ReplayOptions replay_as = replay_options(options);
  std::vector<NamedPath> outputs;
  for (const char* name : {"timeline", "trace"}) {
    if (const auto output = options.text(name)) {
      outputs.push_back({std::string("--") + name, *output});
    }
  }
  check_outputs(outputs, {{"--plan", path}});
  const PlanDocument document = load_plan(path);
  const Topology topology(document.topology, source_name(path));
  check_runnable(document, topology, source_name(path));
  const Replayed replayed = replay(document, topology, replay_as);
  if (const auto timeline = options.text("timeline")) {
    write_result(console, *timeline,
                 write_timeline(replayed.timeline, topology, hash_of(document)));
  }
  if (const auto trace = options.text("trace")) {
    write_result(console, *trace, write_trace(replayed.timeline, topology));
  }
  report(document, replay_as, replayed, console);
  return kDone;
}

}  // namespace

Command replay_command() {
  return {.name = "replay",
          .help = kHelp,
          .options = {{.name = "plan"},
                      {.name = "iterations"},
                      {.name = "pace"},
                      {.name = "unpaced-links", .takes_value = false},
                      {.name = "timeout"},
                      {.name = "timeline"},
                      {.name = "trace"}},
          .run = run_replay};
}

}  // namespace dapple
