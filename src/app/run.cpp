#include "dapple/app/run.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string_view>

#include "commands.h"
#include "console.h"
#include "files.h"

namespace dapple {
namespace {

constexpr const char* kHelp =
    R"(dapple-plan decides how to train a neural network on a set of devices: which
layers form which pipeline stage, on which devices, in which order.

Usage
  dapple-plan [plan] --model PROFILE --topo TOPOLOGY [options]
  dapple-plan COMMAND [options]

Commands
  plan       search the fastest plan that fits memory (the default)
  simulate   run a plan file on its own model and topology, or on others
  validate   name every fault of plan files
  verify     check a plan file's figures, and its bound where it is small
  diff       two plans side by side, costed alike
  schedule   a plan's action lists, for another runtime
  report     a page for a browser, and the timeline as a figure
  reschedule a plan under another schedule: zero bubble, interleaved, ...

Options of plan
  --model FILE         layer profile (dapple-profile/1 or a PipeDream graph)
  --topo FILE          devices and links (dapple-topology/1)
  --global-batch N     samples per iteration        (default: the profile's)
  --micro-batch N      samples per micro-batch      (default: auto, all that
                       divide the global batch)
  -o, --output FILE    the plan                     (default: MODEL.plan.json)
  --trace FILE         timeline for chrome://tracing or ui.perfetto.dev
  "dapple-plan plan --help" lists the others.

  -v, --verbose        what is done, on stderr
  -h, --help           this, or a command's own help
  --version            version, and the formats that are read

Example
  dapple-plan --model profiles/bert-48.json --topo topologies/2x8xV100.json

Exit code: 0 done, 1 a bug, 2 usage, 3 bad input, 4 no plan fits, 5 files.
)";

constexpr const char* kVersion =
    "dapple-plan " DAPPLE_VERSION
    "\n"
    "reads dapple-profile/1, dapple-topology/1, dapple-plan/1, PipeDream graph text\n"
    "writes dapple-plan/1, dapple-timeline/1, dapple-schedule/1, Chrome trace JSON, HTML, SVG\n";

std::vector<Command> commands() {
  return {plan_command(), simulate_command(), validate_command(), verify_command(),
          diff_command(), schedule_command(), report_command(),   reschedule_command()};
}

/// The command that an argument names; nothing where it is an option, so that `plan` is meant.
std::optional<Command> named_command(const std::string& argument) {
  if (!argument.empty() && argument.front() == '-') return std::nullopt;
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == argument) return command;
    names.push_back(command.name);
  }
  const auto suggestion = nearest(argument, names);
  throw usage_error(printable(argument),
                    "unknown command" + (suggestion ? ", nearest is " + *suggestion : ""));
}

void start_logging(std::ostream& err, bool verbose) {
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(err);
  auto logger = std::make_shared<spdlog::logger>("dapple-plan", std::move(sink));
  logger->set_pattern("%v");
  logger->set_level(verbose ? spdlog::level::info : spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

int dispatch(std::vector<std::string> arguments, Console& console) {
  if (arguments.empty()) {
    console.err << kHelp;
    return kUsage;
  }
  if (arguments.front() == "--help" || arguments.front() == "-h" || arguments.front() == "help") {
    console.out << kHelp;
    return kDone;
  }
  if (arguments.front() == "--version") {
    console.out << kVersion;
    return kDone;
  }
  std::optional<Command> command = named_command(arguments.front());
  if (command) {
    arguments.erase(arguments.begin());
  } else {
    command = plan_command();
  }
  // Help is given whatever else is wrong with the command line.
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") {
      console.out << command->help;
      return kDone;
    }
  }
  const Options options{arguments, command->options};
  start_logging(console.err, options.has("verbose"));
  return command->run(options, console);
}

/// All of `text` to the process's stdout; 0, or the errno of what kept it from arriving.
int write_to_stdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

/// Hands over what a command has printed and makes sure that it has arrived. A reader that has seen
/// enough, such as `head`, is told nothing: it does not listen any more.
int deliver(const std::string& results, std::ostream& out, std::ostream& err, int code) {
  int fault = 0;
  if (&out == &std::cout) {
    // A stream forgets why a write failed; the descriptor says it.
    fault = write_to_stdout(results);
  } else if (!(out << results << std::flush)) {
    fault = EIO;
  }
  if (fault == 0) return code;
  if (fault != EPIPE) err << "error: <stdout>: cannot be written: " << std::strerror(fault) << '\n';
  return kEnvironment;
}

int run_guarded(const std::vector<std::string>& arguments, Console& console) {
  try {
    return dispatch(arguments, console);
  } catch (const Error& error) {
    print_error(console, error);
    if (error.kind() == ErrorKind::Usage) console.err << "dapple-plan --help says more\n";
    return exit_code_of(error.kind());
  } catch (const std::bad_alloc&) {
    console.err << "error: out of memory\n";
    return kEnvironment;
  } catch (const std::exception& error) {
    console.err << "error: this is a bug in dapple-plan: " << error.what() << '\n';
    return kBug;
  } catch (...) {
    console.err << "error: this is a bug in dapple-plan: an unknown exception\n";
    return kBug;
  }
}

}  // namespace

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

void print_error(Console& console, const Error& error) {
  std::istringstream lines{error.what()};
  for (std::string line; std::getline(lines, line);) {
    console.err << paint("error:", Ink::Bad, console.err_style) << ' ' << printable(line) << '\n';
  }
}

int run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  if (&out == &std::cout) guard_standard_streams();
  std::ostringstream results;
  Console console = open_console(out, err, results);
  start_logging(err, false);
  const int code = run_guarded(arguments, console);
  const int delivered = deliver(results.str(), out, err, code);
  // The logger writes to the caller's stream, which may end before the program does.
  spdlog::drop_all();
  return delivered;
}

}  // namespace dapple
