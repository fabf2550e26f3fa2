// A command's output: results to `out`, everything else to `err`, with the width, colour and
// interactivity of each.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "dapple/report/show.h"

namespace dapple::command_line {

/// A stream and the text style that it can show.
struct Words {
  std::ostream& stream;
  const report::TextStyle& style;
};

/// Thrown if the reader of stdout, such as `head`, has closed the pipe; no message is printed.
struct NobodyListens {};

/// The streams of a command. `out` and `err` are for people: hidden characters never reach them,
/// whatever file a text comes from (printable() of core/characters.h).
struct Console {
  /// Buffered until the command ends or calls deliver() or offer().
  std::ostream& out;
  std::ostream& err;
  /// Goes to the same place as `out`, unfiltered: for documents that programs read.
  std::ostream& documents;
  report::TextStyle out_style;
  report::TextStyle err_style;
  /// Whether `err` is a terminal on which progress can be shown.
  bool shows_progress = false;
  /// Whether --quiet was given: only requested results, warnings and errors are printed.
  bool is_quiet = false;
  /// Writes what `out` has collected so far, for commands whose results come one by one. Throws
  /// Error(Environment) if it cannot be written, or NobodyListens.
  std::function<void()> deliver = [] {};
  /// Writes as much of it as possible without blocking, for commands that others wait for and that
  /// must not block if a reader has stopped reading. Throws as deliver() does.
  std::function<void()> offer = [] {};
  std::shared_ptr<std::ostream> nowhere = std::make_shared<std::ostream>(nullptr);

  /// Returns the stream for a command's own messages: `err` if a result goes to stdout, a stream
  /// that discards everything if the command is quiet.
  Words words(bool out_is_taken) {
    if (is_quiet) return {*nowhere, out_style};
    return out_is_taken ? Words{err, err_style} : Words{out, out_style};
  }
};

/// Returns the text that a SignalGuard prints for a command that ends after the current `what`,
/// such as "the pass"; empty if the console is quiet.
std::string text_of_interruption(const Console& console, const std::string& what);

/// What stdout and stderr can show, terminals or not.
struct Surfaces {
  report::TextStyle out;
  report::TextStyle err;
  bool shows_progress = false;
};
/// Inspects the environment (NO_COLOR, TERM, COLUMNS, LC_ALL, LC_CTYPE, LANG) and, if `out` and
/// `err` are the process's own, its terminal. Colours and progress are for terminals only.
Surfaces look_at_surfaces(const std::ostream& out, const std::ostream& err);

/// Opens closed standard streams so that reading and writing them fails: a file opened later must
/// not get the descriptor of a closed stdout and receive what is printed there. Also makes writes
/// to a closed pipe, or beyond the limit on a file's size, fail instead of ending the process.
void guard_standard_streams();

/// While it exists, the first SIGHUP, SIGINT, SIGTERM or SIGUSR1 is only recorded; a second one
/// ends the process as it would have without the guard. A signal that was sent directly and one
/// that another process, such as a supervisor, forwards by sigqueue() do not add up to a second
/// one, as both may stem from one signal to the process group. Only one guard may exist at a time.
/// Signals that were ignored before remain ignored. The first signal prints `told`, if not empty,
/// on the process's stderr at once.
class SignalGuard {
 public:
  explicit SignalGuard(std::string told = {});
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  bool has_received() const;

 private:
  struct Before;
  std::unique_ptr<Before> before_;
};

}  // namespace dapple::command_line
