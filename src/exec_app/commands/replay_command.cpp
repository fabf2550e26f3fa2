#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/command_line/files.h"
#include "dapple/core/error.h"
#include "dapple/exec/message/message_memory.h"
#include "dapple/exec/replay/replay.h"
#include "dapple/io/documents/documents.h"
#include "dapple/report/show.h"
#include "exec_app/commands/beside_prediction.h"
#include "exec_app/commands/commands.h"
#include "exec_app/commands/iteration_line.h"
#include "exec_app/commands/rank_process.h"
#include "exec_app/request/compute_device.h"
#include "exec_app/request/runnable_plan.h"

namespace dapple::exec_app {
namespace {

/// The parts of a text such as "1:2:0.5": stages, then a factor.
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
  const std::optional<Factor> slowdown = command_line::parse_factor(text);
  if (!slowdown) return std::nullopt;
  slowing.slowdown = *slowdown;
  return slowing;
}

std::vector<exec::SlowStage> slow_stages(const command_line::Options& options) {
  std::vector<exec::SlowStage> slow;
  for (const std::string& text : options.texts("slow-stage")) {
    const std::optional<Slowing> slowing = parse_slowing(text, 1);
    if (!slowing) {
      throw command_line::usage_error(
          "--slow-stage",
          fmt::format("expected STAGE:FACTOR, such as 1:1.2, got \"{}\"", printable(text)));
    }
    slow.push_back({.stage = slowing->stages[0], .slowdown = slowing->slowdown});
  }
  return slow;
}

std::vector<exec::SlowLink> slow_links(const command_line::Options& options) {
  std::vector<exec::SlowLink> slow;
  for (const std::string& text : options.texts("slow-link")) {
    const std::optional<Slowing> slowing = parse_slowing(text, 2);
    if (!slowing) {
      throw command_line::usage_error("--slow-link",
                                      fmt::format("expected STAGE:NEIGHBOUR:FACTOR, such as "
                                                  "0:1:2, got \"{}\"",
                                                  printable(text)));
    }
    const StageIndex from = slowing->stages[0];
    const StageIndex to = slowing->stages[1];
    if (from.value - to.value != 1 && to.value - from.value != 1) {
      throw command_line::usage_error("--slow-link",
                                      fmt::format("expected two stages that follow each other, as "
                                                  "others send each other nothing, got {} and {}",
                                                  from.value, to.value));
    }
    slow.push_back({.from = from, .to = to, .slowdown = slowing->slowdown});
  }
  if (!slow.empty() && options.has("unpaced-links")) {
    throw command_line::usage_error("--slow-link", "cannot be used with --unpaced-links");
  }
  return slow;
}

/// Throws Error(Usage) if options change links between GPUs, which are real.
void check_links(const command_line::Options& options, const ComputeDevice& device) {
  if (!device.has_own_links()) return;
  for (const char* option : {"pace", "slow-link", "unpaced-links"}) {
    if (!options.has(option)) continue;
    throw command_line::usage_error(
        fmt::format("--{}", option),
        "cannot be used with --device cuda unless --oversubscribe is given, as GPUs have "
        "real links");
  }
}

exec::ReplayOptions replay_options(const command_line::Options& options,
                                   const ComputeDevice& device) {
  constexpr std::int64_t kMostIterations = 100'000;
  exec::ReplayOptions replay;
  if (const auto n = options.positive_integer("iterations", kMostIterations))
    replay.iterations = *n;
  if (const auto pace = options.positive_factor("pace")) replay.pace = *pace;
  check_links(options, device);
  replay.paces_links = !device.has_own_links() && !options.has("unpaced-links");
  replay.slow_stages = slow_stages(options);
  replay.slow_links = slow_links(options);
  if (const auto timeout = options.positive_seconds("timeout")) {
    replay.timeout = std::chrono::nanoseconds(timeout->ns);
  }
  return replay;
}

/// Throws Error(Usage) if a slowed stage or link is not in the plan.
void check_slowed(const exec::ReplayOptions& replay, const Plan& plan) {
  const auto count = static_cast<std::int32_t>(plan.stages.size());
  const auto check_stage = [&](const char* option, StageIndex stage) {
    if (stage.value < count) return;
    throw command_line::usage_error(
        option,
        fmt::format("expected stages of the plan, 0 to {}, got {}", count - 1, stage.value));
  };
  for (const exec::SlowStage& slow : replay.slow_stages) check_stage("--slow-stage", slow.stage);
  if (count == 1 && !replay.slow_links.empty()) {
    throw command_line::usage_error("--slow-link",
                                    "expected a plan of two stages or more, got one of one");
  }
  for (const exec::SlowLink& slow : replay.slow_links) {
    check_stage("--slow-link", std::max(slow.from, slow.to));
  }
}

struct Request {
  std::string plan;
  ComputeDevice device;
  exec::ReplayOptions replay;
  std::optional<std::string> timeline;
  std::optional<std::string> trace;
  std::vector<command_line::NamedPath> outputs;  // of these two, those that were given
};

/// Returns a pace at which this machine should keep up with a margin, if messages were the reason
/// that it took `ratio` times as long as predicted; rounded up to one significant digit, at most
/// 1000.
std::int64_t larger_pace(Factor pace, double ratio) {
  constexpr double kSpare = 1.5;
  constexpr std::int64_t kMost = 1000;
  const double least = static_cast<double>(pace.billionths) * 1e-9 * ratio * kSpare;
  std::int64_t unit = 1;
  while (10 * unit <= kMost && static_cast<double>(10 * unit) <= least) unit *= 10;
  const auto units =
      static_cast<std::int64_t>(std::ceil(std::min(least, 1e6) / static_cast<double>(unit)));
  return std::clamp<std::int64_t>(units * unit, 2, kMost);
}

void report(const Request& request, const RunnablePlan& replayable, const exec::Replayed& replayed,
            const char* carrier, command_line::Console& console) {
  std::ostream& stream = console.words(command_line::takes_stdout(request.outputs)).stream;
  const PlanDocument& document = replayable.document;
  const exec::ReplayOptions& replay = request.replay;
  const Duration predicted = document.prediction.iteration;
  const auto [least, most] =
      std::minmax_element(replayed.iterations.begin(), replayed.iterations.end());
  const double ratio = ratio_of(replayed.median, predicted);
  stream << fmt::format(
      "{} on {}, replayed on {} {}{}{}, {} iteration{}{}\n", printable(document.profile.name),
      printable(document.topology.name), replayed.timeline.lanes.size(), carrier,
      replayed.timeline.lanes.size() == 1 ? "" : "s",
      request.device.kind == ComputeDevice::Kind::Cuda ? " that spin on GPUs" : "",
      replayed.iterations.size(), replayed.iterations.size() == 1 ? "" : "s",
      replay.pace == kOne ? ""
                          : fmt::format(", {:g} times slower than reported here",
                                        static_cast<double>(replay.pace.billionths) * 1e-9));
  const auto done = static_cast<std::int64_t>(replayed.iterations.size());
  if (done < replay.iterations) {
    stream << fmt::format("  interrupted after {} of {} iterations\n", done, replay.iterations);
  }
  stream << fmt::format("  predicted  {}, simulated\n", report::show(predicted))
         << fmt::format("  measured   {}, the median; {} to {}\n",
                        report::show(replayed.median, predicted), report::show(*least, predicted),
                        report::show(*most, predicted))
         << fmt::format("  difference {:+.1f} %\n", 100 * (ratio - 1))
         << fmt::format("  sent       {} per iteration\n", report::show(replayed.sent));
  constexpr double kKeptUp = 1.1;
  constexpr double kHard = 0.1;  // GB/s
  const double rate = static_cast<double>(replayed.sent.count) * 1e9 /
                      static_cast<double>(replay.pace.billionths) /
                      static_cast<double>(std::max<std::int64_t>(1, predicted.ns));
  if (replay.paces_links && rate > kHard && ratio > kKeptUp) {
    command_line::print_warning(
        console, fmt::format("this machine may not keep up with {} GB/s of messages; "
                             "--pace {} shows whether it does",
                             report::show_rate(rate), larger_pace(replay.pace, ratio)));
  }
}

Request request_of(const command_line::Options& options) {
  const ComputeDevice device = compute_device(options);
  return {.plan = options.only_file("plan", "a plan file"),
          .device = device,
          .replay = replay_options(options, device),
          .timeline = options.text("timeline"),
          .trace = options.text("trace"),
          .outputs = command_line::given_paths(options, {"timeline", "trace"})};
}

/// Loads the plan and checks the slowed stages and links.
RunnablePlan replayable_plan(const Request& request) {
  RunnablePlan plan(request.plan);
  if (plan.document.plan.boundaries == Boundaries::ScatterGather) {
    throw Error(ErrorKind::BadInput, command_line::source_name(request.plan),
                {{"/boundaries",
                  "expected whole tensors, as a replay gathers no shares, got scatter-gather"}});
  }
  check_slowed(request.replay, plan.document.plan);
  return plan;
}

void deliver(const Request& request, const RunnablePlan& replayable, const exec::Replayed& replayed,
             const char* carrier, command_line::Console& console) {
  const Topology& topology = replayable.topology;
  if (request.timeline) {
    command_line::write_result(
        console, *request.timeline,
        io::write_timeline(replayed.timeline, topology, io::hash_of(replayable.document)));
  }
  if (request.trace) {
    command_line::write_result(console, *request.trace,
                               io::write_trace(replayed.timeline, topology));
  }
  report(request, replayable, replayed, carrier, console);
}

/// Shows the number of completed iterations on a terminal.
void show_progress(exec::ReplayOptions& replay, IterationLine& line) {
  replay.progress = [&line, all = replay.iterations](std::int64_t done) { line.show(done, all); };
}

/// Returns a function from a device's schedule to its connections. The plan must outlive it.
ConnectionsOf connections_in(const Plan& plan) {
  return [&plan](const DeviceSchedule& own) { return exec::connections_of(plan, own); };
}

int replay_on_threads(Request& request, command_line::Console& console) {
  check_outputs(request.outputs, {{"--plan", request.plan}});
  const RunnablePlan replayable = replayable_plan(request);
  log_threads(replayable);
  const GpuShare share{.devices = replayable.device_count()};
  request.replay.make_backend = make_replay_backend_for(request.device, share);
  request.replay.make_end_over =
      make_gpu_ends(request.device, {.topology = replayable.topology,
                                     .connections_of = connections_in(replayable.document.plan),
                                     .share = share,
                                     .timeout = request.replay.timeout});
  exec::Replayed replayed;
  {
    const command_line::SignalGuard interrupt(
        command_line::text_of_interruption(console, "the iteration"));
    request.replay.should_stop = [&interrupt] { return interrupt.has_received(); };
    IterationLine line(console);
    show_progress(request.replay, line);
    replayed = replay(replayable.document, replayable.topology, request.replay);
  }
  deliver(request, replayable, replayed, "thread", console);
  return command_line::kDone;
}

int replay_as_rank(Request& request, const RunnablePlan& replayable, command_line::Console& console,
                   exec::RankJob& job, exec::CrashRecord* crash_record) {
  if (job.rank() == 0) check_outputs(request.outputs, {{"--plan", request.plan}});
  const Topology& topology = replayable.topology;
  const command_line::SignalGuard interrupt;
  request.replay.should_stop = [&interrupt] { return interrupt.has_received(); };
  IterationLine line(console);
  if (job.rank() == 0) show_progress(request.replay, line);
  const GpuShare share = gpu_share(job);
  request.replay.make_backend = make_replay_backend_for(request.device, share);
  exec::Replay replay(replayable.document, topology, request.replay);
  const std::unique_ptr<exec::Transport> end = join_job(
      job, topology, replay.devices(),
      {.pacing = replay.pacing(),
       .timeout = request.replay.timeout,
       .crash_record = crash_record,
       .agreement = fmt::format(
           "replay {} {} {} {} {} {}", io::hash_of(replayable.document), request.replay.iterations,
           request.replay.pace.billionths, request.replay.paces_links,
           request.device.kind == ComputeDevice::Kind::Cuda, request.device.oversubscribes)});
  const auto place = static_cast<std::size_t>(job.rank());
  const exec::MakeEndOver make_end_over =
      make_gpu_ends(request.device, {.topology = topology,
                                     .connections_of = connections_in(replayable.document.plan),
                                     .share = share,
                                     .timeout = request.replay.timeout});
  const std::unique_ptr<exec::Transport> between_gpus =
      make_end_over(*end, replay.schedules(), place);
  const std::optional<exec::Replayed> replayed =
      replay.run(place, between_gpus ? *between_gpus : *end);
  line.clear();
  if (replayed) deliver(request, replayable, *replayed, "rank", console);
  return command_line::kDone;
}

int run_replay(const command_line::Options& options, command_line::Console& console) {
  Request request = request_of(options);
  if (!is_rank()) return replay_on_threads(request, console);
  check_rank_inputs({{"--plan", request.plan}});
  const RunnablePlan replayable = replayable_plan(request);
  check_rank_count(replayable.device_count());
  return run_as_rank(console, request.replay.timeout,
                     [&](exec::RankJob& job, exec::CrashRecord* crash_record) {
                       return replay_as_rank(request, replayable, console, job, crash_record);
                     });
}

std::vector<command_line::OptionSection> replay_table() {
  return {{"",
           {{.name = "plan",
             .value = "FILE",
             .kind = command_line::ValueKind::File,
             .text = "Read the plan from FILE, in place of PLAN.",
             .details = "\"-\" is stdin."},
            device_option("Pass time on {}, a GPU per device."),
            oversubscribe_option(),
            {.name = "iterations",
             .value = "N",
             .text = "Report the median of N iterations.",
             .default_value = "10",
             .details = "N is at most 100,000."},
            timeout_option()}},
          {"Pace",
           {{.name = "pace",
             .value = "X",
             .text = "Run everything X times slower, and divide the times by X.",
             .default_value = "1",
             .details = "A machine too slow for the plan can then keep up; X is at most 1000."},
            {.name = "unpaced-links",
             .text = "Let messages pass as fast as this machine copies.",
             .details = "Ranks on several hosts need it."},
            {.name = "slow-stage",
             .value = "S:X",
             .repeats = true,
             .text = "Make stage S compute X times longer."},
            {.name = "slow-link",
             .value = "S:T:X",
             .repeats = true,
             .text = "Divide the bandwidth from stage S to T by X.",
             .details = "T is the stage before or behind S."}}},
          {"Output",
           {command_line::timeline_option("Write what was measured as JSON."),
            command_line::trace_option()}}};
}

}  // namespace

command_line::Command replay_command() {
  return {
      .description =
          {.name = "replay",
           .summary = "run a plan with its real messages, and without computing",
           .usage = {"dapple-exec replay PLAN [options]",
                     "mpirun -np N dapple-exec replay PLAN [options]"},
           .about = "Every device sleeps for as long as the plan says that it computes, and sends "
                    "real messages, no faster than the topology's links. Measured and predicted "
                    "times are reported. Ctrl-C ends the replay after the current iteration.",
           .details =
               {"Every device of the plan is a thread, or a rank that mpirun, torchrun or "
                "srun has started, in the order of the plan's devices; --verbose says which. "
                "Contention on links is not simulated: the messages really compete.",
                "On GPUs, devices spin, and messages pass between GPUs as in training, "
                "unpaced; if several devices share a GPU, links are paced."},
           .takes_files = true,
           .options = replay_table(),
           .examples = {"dapple-plan --model profiles/bert-large.json --topo "
                        "topologies/8xV100.json \\",
                        "    --global-batch 8 --pin stages=2 --pin replicas=1 -o two.json",
                        "dapple-exec replay two.json --iterations 3 --timeline measured.json"},
           .exit_codes = {{command_line::kEnvironment,
                           "a file or a GPU failed, or a device does not answer or has died"}}},
      .run = run_replay};
}

}  // namespace dapple::exec_app
