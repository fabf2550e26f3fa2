// dapple-exec: runs a plan.

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/decimal.h"
#include "dapple/core/error.h"
#include "dapple/cost/costs.h"
#include "dapple/exec/replay.h"
#include "dapple/io/documents.h"
#include "dapple/schedule/schedule.h"

namespace {

using namespace dapple;
namespace po = boost::program_options;

constexpr const char* kHelp =
    R"(dapple-exec runs a plan.

Usage
  dapple-exec replay --plan PLAN [options]

replay   every device is a thread that sleeps for as long as the plan says that
         it computes, and sends real messages over links that let them pass no
         faster than the topology's; what shares a link is not computed, it
         happens. Compares the measured time of an iteration with the predicted.

  --plan FILE        a plan that dapple-plan wrote; "-" is stdin
  --iterations N     the median of them counts                   (default: 10)
  --pace X           everything takes X times longer, so that this machine can
                     keep up; what is told is divided by X again  (default: 1)
  --unpaced-links    messages pass as fast as this machine copies
  --timeout SECONDS  of every wait for another device           (default: 30)
  --timeline FILE    what was measured, as dapple-timeline/1
  --trace FILE       the same for chrome://tracing or ui.perfetto.dev
  -h, --help         this
  --version          version

Example
  dapple-exec replay --plan bert-48.plan.json --pace 2 --trace measured.json

Exit code: 0 done, 1 a bug, 2 usage, 3 bad input, 5 files, or a device that
does not answer.
)";

enum ExitCode { kDone = 0, kBug = 1, kUsage = 2, kBadInput = 3, kEnvironment = 5 };

Error usage_error(const std::string& place, const std::string& message) {
  return Error{ErrorKind::Usage, "", {{place, message}}};
}

struct Request {
  std::string plan;
  ReplayOptions replay;
  std::optional<std::string> timeline;
  std::optional<std::string> trace;
};

po::options_description described() {
  po::options_description description;
  auto add = description.add_options();
  for (const char* name :
       {"command", "plan", "iterations", "pace", "timeout", "timeline", "trace"}) {
    add(name, po::value<std::string>());
  }
  add("unpaced-links", "")("help,h", "")("version", "");
  return description;
}

po::variables_map parse(const std::vector<std::string>& arguments) {
  const po::options_description description = described();
  po::positional_options_description positional;
  positional.add("command", 1);
  po::variables_map values;
  try {
    // No guessing: a shortened option would change its meaning with the next new one.
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(arguments)
                  .options(description)
                  .positional(positional)
                  .style(style)
                  .run(),
              values);
  } catch (const po::error& error) { throw usage_error("", error.what()); }
  return values;
}

std::optional<std::string> text_of(const po::variables_map& values, const char* name) {
  if (values.count(name) == 0) return std::nullopt;
  return values[name].as<std::string>();
}

/// A decimal number above zero in billionths, at most a million.
std::optional<std::int64_t> billionths_of(const po::variables_map& values, const char* name) {
  constexpr std::int64_t kMost = 1'000'000;
  const std::optional<std::string> text = text_of(values, name);
  if (!text) return std::nullopt;
  const std::optional<Wide> number =
      is_plain_decimal(*text) ? scaled_exactly(*text, kOne.billionths) : std::nullopt;
  if (!number || *number <= 0 || *number > Wide{kMost} * kOne.billionths) {
    throw usage_error(fmt::format("--{}", name),
                      fmt::format("expected a number above 0 with at most nine decimals, at most "
                                  "{}, got \"{}\"",
                                  kMost, *text));
  }
  return static_cast<std::int64_t>(*number);
}

std::int64_t iterations_of(const po::variables_map& values) {
  constexpr std::int64_t kMost = 100'000;
  const std::string text = text_of(values, "iterations").value_or("10");
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc{} || stop != end || number < 1 || number > kMost) {
    throw usage_error("--iterations", fmt::format("expected a whole number from 1 to {}, got "
                                                  "\"{}\"",
                                                  kMost, text));
  }
  return number;
}

Request request_of(const po::variables_map& values) {
  const std::string command = text_of(values, "command").value_or("");
  if (command != "replay") {
    throw usage_error("", fmt::format("expected the command replay, got \"{}\"", command));
  }
  Request request;
  const std::optional<std::string> plan = text_of(values, "plan");
  if (!plan) throw usage_error("--plan", "expected a plan file, got nothing");
  request.plan = *plan;
  request.replay.iterations = iterations_of(values);
  if (const auto pace = billionths_of(values, "pace")) request.replay.pace = Factor{*pace};
  request.replay.paces_links = values.count("unpaced-links") == 0;
  if (const auto timeout = billionths_of(values, "timeout")) {
    request.replay.timeout = std::chrono::nanoseconds(*timeout);
  }
  request.timeline = text_of(values, "timeline");
  request.trace = text_of(values, "trace");
  return request;
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

void report(const PlanDocument& document, const Request& request, const Replayed& replayed) {
  const Duration predicted = document.prediction.iteration;
  const auto [least, most] =
      std::minmax_element(replayed.iterations.begin(), replayed.iterations.end());
  const double ratio = static_cast<double>(replayed.median.ns) /
                       static_cast<double>(std::max<std::int64_t>(1, predicted.ns));
  fmt::print(std::cout, "{} on {}, replayed on {} thread{}, {} iteration{}{}\n",
             document.profile.name, document.topology.name, replayed.timeline.lanes.size(),
             replayed.timeline.lanes.size() == 1 ? "" : "s", replayed.iterations.size(),
             replayed.iterations.size() == 1 ? "" : "s",
             request.replay.pace == kOne
                 ? ""
                 : fmt::format(", {:g} times slower than told here",
                               static_cast<double>(request.replay.pace.billionths) * 1e-9));
  fmt::print(std::cout, "  predicted  {:.3f} ms, simulated\n", milliseconds(predicted));
  fmt::print(std::cout, "  measured   {:.3f} ms, the median; {:.3f} to {:.3f} ms\n",
             milliseconds(replayed.median), milliseconds(*least), milliseconds(*most));
  fmt::print(std::cout, "  difference {:+.1f} %\n", 100 * (ratio - 1));
  fmt::print(std::cout, "  sent       {:.1f} MB per iteration\n",
             static_cast<double>(replayed.sent.count) * 1e-6);
  constexpr double kKeptUp = 1.1;
  if (request.replay.paces_links && replayed.sent.count > 0 && ratio > kKeptUp) {
    fmt::print(std::cerr,
               "warning: this machine may not keep up with {:.1f} GB/s of messages: a larger "
               "--pace tells\n",
               static_cast<double>(replayed.sent.count) * 1e9 /
                   static_cast<double>(request.replay.pace.billionths) /
                   static_cast<double>(std::max<std::int64_t>(1, predicted.ns)));
  }
}

int run(const std::vector<std::string>& arguments) {
  const po::variables_map values = parse(arguments);
  if (values.count("help") > 0) {
    std::cout << kHelp;
    return kDone;
  }
  if (values.count("version") > 0) {
    std::cout << "dapple-exec " DAPPLE_VERSION "\n";
    return kDone;
  }
  if (arguments.empty()) {
    std::cerr << kHelp;
    return kUsage;
  }
  const Request request = request_of(values);
  const PlanDocument document = read_plan(read_file(request.plan), request.plan);
  const Topology topology(document.topology, request.plan);
  check_runnable(document, topology, request.plan);
  const Replayed replayed = replay(document, topology, request.replay);
  if (request.timeline) {
    write_file(*request.timeline, write_timeline(replayed.timeline, topology, hash_of(document)));
  }
  if (request.trace) write_file(*request.trace, write_trace(replayed.timeline, topology));
  report(document, request, replayed);
  return kDone;
}

int exit_code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Usage:
      return kUsage;
    case ErrorKind::BadInput:
      return kBadInput;
    case ErrorKind::Environment:
      return kEnvironment;
  }
  return kBug;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const Error& error) {
    fmt::print(std::cerr, "error: {}\n", error.what());
    return exit_code_of(error.kind());
  } catch (const std::exception& error) {
    fmt::print(std::cerr, "bug: {}\n", error.what());
    return kBug;
  }
}
