#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "beside_prediction.h"
#include "commands.h"
#include "dapple/command_line/files.h"
#include "dapple/core/error.h"
#include "dapple/exec/replay.h"
#include "dapple/io/documents.h"
#include "iteration_line.h"
#include "mpi_rank.h"
#include "runnable_plan.h"

namespace dapple {
namespace {

constexpr const char* kHelp =
    R"(dapple-exec replay: a plan with its real messages, and sleeping for computing.

Usage: dapple-exec replay --plan PLAN [options]
       mpirun -np N dapple-exec replay --plan PLAN [options]

Every device is a thread, or a rank by the order of the plan's devices (-v says
which), that sleeps for as long as the plan says that it computes, and sends
real messages over links that let them pass no faster than the topology's; what
shares a link is not computed, it happens. Tells measured and predicted times.

  --plan FILE        a plan that dapple-plan wrote; "-" is stdin
  --iterations N     the median of them counts                   (default: 10)
  --pace X           everything takes X times longer, so that this machine can
                     keep up; what is told is divided by X again  (default: 1)
  --unpaced-links    messages pass as fast as this machine copies; ranks on
                     several hosts must do without paced ones
  --slow-stage S:X   what stage S computes takes X times longer; may repeat
  --slow-link S:T:X  what stage S sends to its neighbour T passes at the X-th
                     part of the bandwidth; may repeat
  --timeout SECONDS  of every wait for another device           (default: 30)
  --timeline FILE    what was measured, as dapple-timeline/1
  --trace FILE       the same for chrome://tracing or ui.perfetto.dev
  -v, --verbose      what is done, on stderr
  -h, --help         this

Example
  dapple-exec replay --plan bert-48.plan.json --pace 2 --timeline measured.json
  dapple-plan diff bert-48.plan.json measured.json

Exit code: 0 done, 2 usage, 3 bad input, 5 files, or a device that does not
answer or has died.
)";

/// "1:2:0.5" as its parts; as many as asked for, the last one a factor.
struct Slowing {
  std::vector<StageIndex> stages;
  Factor slowdown;
};
std::optional<Slowing> parse_slowing(std::string_view text, std::size_t stages) {
  Slowing slowing;
  while (slowing.stages.size() < stages) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    std::int32_t number = -1;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + colon, number);
    if (fault != std::errc{} || end != text.data() + colon || number < 0) return std::nullopt;
    slowing.stages.push_back({number});
    text.remove_prefix(colon + 1);
  }
  const std::optional<Factor> slowdown = parse_factor(text);
  if (!slowdown) return std::nullopt;
  slowing.slowdown = *slowdown;
  return slowing;
}

std::vector<SlowStage> slow_stages(const Options& options) {
  std::vector<SlowStage> slow;
  for (const std::string& text : options.texts("slow-stage")) {
    const std::optional<Slowing> slowing = parse_slowing(text, 1);
    if (!slowing) {
      throw usage_error("--slow-stage",
                        fmt::format("expected STAGE:FACTOR, such as 1:1.2, got \"{}\"", text));
    }
    slow.push_back({.stage = slowing->stages[0], .slowdown = slowing->slowdown});
  }
  return slow;
}

std::vector<SlowLink> slow_links(const Options& options) {
  std::vector<SlowLink> slow;
  for (const std::string& text : options.texts("slow-link")) {
    const std::optional<Slowing> slowing = parse_slowing(text, 2);
    if (!slowing || std::abs(slowing->stages[0].value - slowing->stages[1].value) != 1) {
      throw usage_error(
          "--slow-link",
          fmt::format("expected STAGE:NEIGHBOUR:FACTOR, such as 0:1:2, got \"{}\"", text));
    }
    slow.push_back(
        {.from = slowing->stages[0], .to = slowing->stages[1], .slowdown = slowing->slowdown});
  }
  if (!slow.empty() && options.has("unpaced-links")) {
    throw usage_error("--slow-link", "expected no --unpaced-links beside it");
  }
  return slow;
}

ReplayOptions replay_options(const Options& options) {
  constexpr std::int64_t kMostIterations = 100'000;
  ReplayOptions replay;
  if (const auto n = options.positive_integer("iterations", kMostIterations))
    replay.iterations = *n;
  if (const auto pace = options.positive_factor("pace")) replay.pace = *pace;
  replay.paces_links = !options.has("unpaced-links");
  replay.slow_stages = slow_stages(options);
  replay.slow_links = slow_links(options);
  if (const auto timeout = options.positive_seconds("timeout")) {
    replay.timeout = std::chrono::nanoseconds(timeout->ns);
  }
  return replay;
}

/// Refuses stages that the plan does not have.
void check_slowed(const ReplayOptions& replay, const Plan& plan) {
  const auto count = static_cast<std::int32_t>(plan.stages.size());
  const auto check_stage = [&](const char* option, StageIndex stage) {
    if (stage.value < count) return;
    throw usage_error(option,
                      fmt::format("expected stages from 0 to {}, got {}", count - 1, stage.value));
  };
  for (const SlowStage& slow : replay.slow_stages) check_stage("--slow-stage", slow.stage);
  for (const SlowLink& slow : replay.slow_links) {
    check_stage("--slow-link", std::max(slow.from, slow.to));
  }
}

struct Request {
  std::string plan;
  ReplayOptions replay;
  std::optional<std::string> timeline;
  std::optional<std::string> trace;
};

void report(const PlanDocument& document, const ReplayOptions& replay, const Replayed& replayed,
            const char* carrier, Console& console) {
  const Duration predicted = document.prediction.iteration;
  const auto [least, most] =
      std::minmax_element(replayed.iterations.begin(), replayed.iterations.end());
  const double ratio = ratio_of(replayed.median, predicted);
  console.out << fmt::format(
      "{} on {}, replayed on {} {}{}, {} iteration{}{}\n", document.profile.name,
      document.topology.name, replayed.timeline.lanes.size(), carrier,
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
  constexpr double kHard = 0.1;  // GB/s
  const double rate = static_cast<double>(replayed.sent.count) * 1e9 /
                      static_cast<double>(replay.pace.billionths) /
                      static_cast<double>(std::max<std::int64_t>(1, predicted.ns));
  if (replay.paces_links && rate > kHard && ratio > kKeptUp) {
    console.err << fmt::format(
        "warning: this machine may not keep up with {:.1f} GB/s of messages: a larger "
        "--pace tells\n",
        rate);
  }
}

Request request_of(const Options& options) {
  if (!options.positional().empty()) {
    throw usage_error(options.positional().front(), "expected options only");
  }
  return {.plan = options.required("plan", "a plan file"),
          .replay = replay_options(options),
          .timeline = options.text("timeline"),
          .trace = options.text("trace")};
}

void check_outputs(const Request& request) {
  std::vector<NamedPath> outputs;
  if (request.timeline) outputs.push_back({"--timeline", *request.timeline});
  if (request.trace) outputs.push_back({"--trace", *request.trace});
  check_outputs(outputs, {{"--plan", request.plan}});
}

/// Also refuses slowed stages that it does not have.
RunnablePlan replayable_plan(const Request& request) {
  RunnablePlan plan(request.plan);
  check_slowed(request.replay, plan.document.plan);
  return plan;
}

void deliver(const Request& request, const RunnablePlan& replayable, const Replayed& replayed,
             const char* carrier, Console& console) {
  const Topology& topology = replayable.topology;
  if (request.timeline) {
    write_result(console, *request.timeline,
                 write_timeline(replayed.timeline, topology, hash_of(replayable.document)));
  }
  if (request.trace) {
    write_result(console, *request.trace, write_trace(replayed.timeline, topology));
  }
  report(replayable.document, request.replay, replayed, carrier, console);
}

/// Shows on a terminal how far it is.
void show_progress(ReplayOptions& replay, IterationLine& line) {
  replay.progress = [&line, all = replay.iterations](std::int64_t done) { line.show(done, all); };
}

int replay_on_threads(Request& request, Console& console) {
  check_outputs(request);
  const RunnablePlan replayable = replayable_plan(request);
  Replayed replayed;
  {
    IterationLine line(console);
    show_progress(request.replay, line);
    replayed = replay(replayable.document, replayable.topology, request.replay);
  }
  deliver(request, replayable, replayed, "thread", console);
  return kDone;
}

int replay_as_rank(Request& request, Console& console, MpiJob& job, LastWords& last_words) {
  if (request.plan == "-") {
    throw usage_error("--plan", "expected a file, which every rank can read, got stdin");
  }
  if (job.rank() == 0) check_outputs(request);
  const RunnablePlan replayable = replayable_plan(request);
  const Topology& topology = replayable.topology;
  IterationLine line(console);
  if (job.rank() == 0) show_progress(request.replay, line);
  Replay replay(replayable.document, topology, request.replay);
  const std::unique_ptr<Transport> end = join_job(
      job, topology, replay.devices(),
      {.pacing = replay.pacing(), .timeout = request.replay.timeout, .last_words = &last_words});
  const std::optional<Replayed> replayed = replay.run(static_cast<std::size_t>(job.rank()), *end);
  line.clear();
  if (replayed) deliver(request, replayable, *replayed, "rank", console);
  return kDone;
}

int run_replay(const Options& options, Console& console) {
  if (!is_mpi_rank()) {
    Request request = request_of(options);
    return replay_on_threads(request, console);
  }
  return run_as_rank(console, [&](MpiJob& job, LastWords& last_words) {
    Request request = request_of(options);  // of which one rank says what is wrong with it
    return replay_as_rank(request, console, job, last_words);
  });
}

}  // namespace

Command replay_command() {
  return {.name = "replay",
          .help = kHelp,
          .options = {{.name = "plan"},
                      {.name = "iterations"},
                      {.name = "pace"},
                      {.name = "unpaced-links", .takes_value = false},
                      {.name = "slow-stage", .repeats = true},
                      {.name = "slow-link", .repeats = true},
                      {.name = "timeout"},
                      {.name = "timeline"},
                      {.name = "trace"}},
          .run = run_replay};
}

}  // namespace dapple
