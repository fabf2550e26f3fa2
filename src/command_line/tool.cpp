#include "dapple/command_line/tool.h"

#include <poll.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "command_line/safe_stream.h"
#include "dapple/command_line/files.h"
#include "dapple/command_line/manual.h"
#include "dapple/report/show.h"

namespace dapple::command_line {
namespace {

/// Returns the command that an argument names, or nothing if the argument is an option.
std::optional<Command> named_command(const std::vector<Command>& commands,
                                     const std::string& argument) {
  if (!argument.empty() && argument.front() == '-') return std::nullopt;
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.description.name == argument) return command;
    names.push_back(command.description.name);
  }
  const auto suggestion = nearest(argument, names);
  throw usage_error(printable(argument),
                    "unknown command" + (suggestion ? ", nearest is " + *suggestion : ""));
}

void start_logging(const Tool& tool, std::ostream& err, bool verbose) {
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(err);
  auto logger = std::make_shared<spdlog::logger>(tool.description.name, std::move(sink));
  logger->set_pattern("%v");
  logger->set_level(verbose ? spdlog::level::info : spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

/// Replaces a command by its part that the first argument names.
void choose_part(Command& command, std::vector<std::string>& arguments, std::string& topic) {
  std::optional<Command> part;
  if (!arguments.empty()) part = named_command(command.parts, arguments.front());
  if (!part) {
    std::string names;
    for (const Command& each : command.parts) {
      names += (names.empty() ? "" : ", ") + each.description.name;
    }
    throw usage_error(command.description.name, "expected one of " + names + " after it");
  }
  topic += ' ' + part->description.name;
  arguments.erase(arguments.begin());
  command = std::move(*part);
}

bool asks_for_help(const std::string& argument) {
  return argument == "--help" || argument == "-h";
}

/// Rewrites "help import plan" as "import plan --help" and "help" as "--help". Returns whether the
/// arguments began with "help".
bool settle_help(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "help") return false;
  arguments.erase(arguments.begin());
  std::erase_if(arguments, asks_for_help);
  arguments.emplace_back("--help");
  return true;
}

/// Writes manual pages and completions below the folder that "help --install" names.
int install_manual(const Tool& tool, const std::vector<std::string>& arguments, Console& console) {
  if (arguments.size() != 1 || arguments.front().empty() || arguments.front() == "-") {
    throw usage_error("--install", "expected one folder, such as ~/.local/share or /usr/share");
  }
  Results results(console);
  results.add_folder(arguments.front());
  for (const ManualFile& file : manual_files(tool)) {
    std::filesystem::path folder = arguments.front();
    for (const std::filesystem::path& part : std::filesystem::path(file.folder)) {
      folder /= part;
      results.add_folder(folder.string());
    }
    results.add((folder / file.name).string(), file.text);
  }
  results.commit();
  return kDone;
}

/// Removes and returns the switches that precede the command's name, as in "-q verify".
std::vector<std::string> take_leading_switches(std::vector<std::string>& arguments) {
  const auto end =
      std::find_if_not(arguments.begin(), arguments.end(), [](const std::string& argument) {
        return argument == "-q" || argument == "--quiet" || argument == "-v" ||
               argument == "--verbose";
      });
  std::vector<std::string> switches(arguments.begin(), end);
  arguments.erase(arguments.begin(), end);
  return switches;
}

/// Runs the command and returns its exit code. `topic` becomes the command whose --help an error
/// message refers to, such as "dapple-plan diff".
int dispatch(const Tool& tool, std::vector<std::string> arguments, Console& console,
             std::string& topic) {
  if (arguments.empty()) {
    console.err << help_of(tool);
    return kUsage;
  }
  const std::vector<std::string> switches = take_leading_switches(arguments);
  if (arguments.size() > 1 && arguments[0] == "help" && arguments[1] == "--install") {
    return install_manual(tool, {arguments.begin() + 2, arguments.end()}, console);
  }
  const bool is_help_command = settle_help(arguments);
  const std::string first = arguments.empty() ? switches.front() : arguments.front();
  if (asks_for_help(first)) {
    console.out << help_of(tool);
    return kDone;
  }
  if (first == "--version") {
    console.out << tool.version;
    return kDone;
  }
  std::optional<Command> command = named_command(tool.commands, first);
  if (command) {
    topic += ' ' + command->description.name;
    arguments.erase(arguments.begin());
  } else if (tool.first_is_default) {
    command = tool.commands.front();
    topic += ' ' + command->description.name;
  } else {
    throw usage_error(printable(first), "expected a command before the options");
  }
  const bool is_help_on_parts = !arguments.empty() && asks_for_help(arguments.front());
  if (!command->parts.empty() && !is_help_on_parts) choose_part(*command, arguments, topic);
  if (is_help_command && arguments.size() > 1) {
    throw usage_error(printable(arguments.front()), "expected nothing after the name of a command");
  }
  arguments.insert(arguments.begin(), switches.begin(), switches.end());
  // Help is printed even if the command line has other errors.
  if (std::any_of(arguments.begin(), arguments.end(), asks_for_help)) {
    console.out << help_of(*command, topic);
    return kDone;
  }
  const Options options{arguments, all_options(command->description)};
  start_logging(tool, console.err, options.has("verbose"));
  console.is_quiet = options.has("quiet");
  console.out_style.verbose = console.err_style.verbose = options.has("verbose");
  return command->run(options, console);
}

enum class Delivery { Waits, TakesWhatGoes };

/// Whether a write of up to PIPE_BUF bytes succeeds or fails without blocking.
bool stdout_is_ready() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return poll(&out, 1, 0) > 0;
}

/// Writes `text` to the process's stdout and removes the written part from its front. Returns 0, or
/// the errno of the failure.
int write_to_stdout(std::string_view& text, Delivery delivery) {
  while (!text.empty() && (delivery == Delivery::Waits || stdout_is_ready())) {
    const std::size_t most = delivery == Delivery::Waits ? text.size() : PIPE_BUF;
    const ssize_t count = write(STDOUT_FILENO, text.data(), std::min(text.size(), most));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

/// Writes what a command has printed so far, or as much of it as is possible without blocking, and
/// checks that it was written. Does not retry what has failed. Throws Error or NobodyListens.
void deliver(std::ostringstream& results, std::ostream& out, Delivery delivery) {
  int fault = 0;
  std::string rest;
  if (&out == &std::cout) {
    // A stream does not keep the errno of a failed write, so the descriptor is used directly.
    const std::string text = results.str();
    std::string_view left = text;
    fault = write_to_stdout(left, delivery);
    if (fault == 0) rest = left;
  } else if (!(out << results.str() << std::flush)) {
    fault = EIO;
  }
  results.str(rest);
  results.seekp(0, std::ios::end);
  if (fault == EPIPE) throw NobodyListens{};
  if (fault == 0) return;
  throw Error{ErrorKind::Environment,
              "<stdout>",
              {{"", std::string("cannot be written: ") + std::strerror(fault)}}};
}

/// Writes what a command has printed before it failed. Failures to write are ignored, so that the
/// command's own error is reported.
void deliver_before_fault(const Console& console) {
  try {
    console.deliver();
  } catch (const NobodyListens&) {
  } catch (const Error&) {}
}

int run_guarded(const Tool& tool, const std::vector<std::string>& arguments, Console& console) {
  std::string topic = tool.description.name;
  try {
    int code = kDone;
    try {
      code = dispatch(tool, arguments, console, topic);
    } catch (...) {
      deliver_before_fault(console);
      throw;
    }
    console.deliver();
    return code;
  } catch (const NobodyListens&) { return kEnvironment; } catch (const Error& error) {
    const auto tell = [&](const Error& told) {
      print_error(console, told);
      if (told.kind() == ErrorKind::Usage) console.err << topic << " --help shows the options\n";
    };
    if (tool.end_with_others != nullptr) tool.end_with_others(error, tell);
    tell(error);
    return exit_code_of(error.kind());
  } catch (const std::bad_alloc&) {
    console.err << "error: out of memory\n";
    return kEnvironment;
  } catch (const std::system_error& error) {  // such as a thread that cannot be started
    console.err << "error: the system refuses: " << error.what() << '\n';
    return kEnvironment;
  } catch (const std::exception& error) {
    console.err << "error: this is a bug in " << tool.description.name << ": " << error.what()
                << '\n';
    return kBug;
  } catch (...) {
    console.err << "error: this is a bug in " << tool.description.name
                << ": an unknown exception\n";
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
  constexpr std::string_view kHead = "error:";
  for (const Violation& violation : error.violations()) {
    // printable() also replaces line breaks, which file names may contain.
    const std::string text = printable(Error{error.kind(), error.source(), {violation}}.what());
    // Off a terminal, each fault is a single line for programs to read.
    console.err << report::paint(kHead, report::Ink::Bad, console.err_style) << ' '
                << (console.err_style.wraps
                        ? report::fill_lines(text, kHead.size() + 1, console.err_style)
                        : text)
                << '\n';
  }
}

void print_warning(Console& console, const std::string& text) {
  constexpr std::string_view kHead = "warning:";
  const std::string line = printable(text);
  console.err << report::paint(kHead, report::Ink::Warning, console.err_style) << ' '
              << (console.err_style.wraps
                      ? report::fill_lines(line, kHead.size() + 1, console.err_style)
                      : line)
              << '\n';
}

void print_warnings_if_quiet(Console& console, const std::vector<std::string>& texts) {
  if (!console.is_quiet) return;
  for (const std::string& text : texts) print_warning(console, text);
}

int run_tool(const Tool& tool, const std::vector<std::string>& arguments, std::ostream& out,
             std::ostream& err) {
  if (&out == &std::cout) guard_standard_streams();
  const Surfaces surfaces = look_at_surfaces(out, err);
  std::ostringstream results;
  SafeStream words(results, surfaces.out.color);
  SafeStream messages(err, surfaces.err.color || surfaces.shows_progress);
  Console console{.out = words,
                  .err = messages,
                  .documents = results,
                  .out_style = surfaces.out,
                  .err_style = surfaces.err,
                  .shows_progress = surfaces.shows_progress};
  console.deliver = [&words, &results, &out] {
    words.flush();
    deliver(results, out, Delivery::Waits);
  };
  console.offer = [&words, &results, &out] {
    words.flush();
    deliver(results, out, Delivery::TakesWhatGoes);
  };
  start_logging(tool, messages, false);
  const int code = run_guarded(tool, arguments, console);
  // The logger writes to the caller's stream, which may be destroyed before the program ends.
  spdlog::drop_all();
  return code;
}

}  // namespace dapple::command_line
