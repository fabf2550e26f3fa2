// Where a command's words go: results to `out`, everything else to `err`, and how wide, colourful
// and interactive each is.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "dapple/report/show.h"

namespace dapple::command_line {

/// A stream and what it can show.
struct Words {
  std::ostream& stream;
  const report::TextStyle& style;
};

/// The reader of stdout has seen enough, such as `head`: it is told nothing, as it does not listen.
struct NobodyListens {};

/// People read `out` and `err`: hidden characters never reach them, whatever file a text comes from
/// (printable() of core/characters.h).
struct Console {
  std::ostream& out;  // kept until the command ends, then delivered as a whole
  std::ostream& err;
  std::ostream& documents;  // the same place as `out`, for what programs read, byte by byte
  report::TextStyle out_style;
  report::TextStyle err_style;
  bool shows_progress = false;  // err is a terminal
  bool is_quiet = false;        // --quiet: results that were asked for, warnings and errors alone
  /// Delivers what `out` has collected so far: for commands whose results come one by one. Throws
  /// Error(Environment) where it cannot be written, and NobodyListens.
  std::function<void()> deliver = [] {};
  /// Delivers as much of it as is taken without waiting: for commands that others wait for, who do
  /// not care whether a reader has stopped. Throws as deliver().
  std::function<void()> offer = [] {};
  std::shared_ptr<std::ostream> nowhere = std::make_shared<std::ostream>(nullptr);

  /// Where a command's own words go: to `err` where a result takes stdout, nowhere if it is quiet.
  Words words(bool out_is_taken) {
    if (is_quiet) return {*nowhere, out_style};
    return out_is_taken ? Words{err, err_style} : Words{out, out_style};
  }
};

/// What a SignalGuard tells of a command that ends after `what` it is at: "the pass". Nothing if it
/// is quiet.
std::string text_of_interruption(const Console& console, const std::string& what);

/// What a terminal, or what is in the place of one, can show.
struct Surfaces {
  report::TextStyle out;
  report::TextStyle err;
  bool shows_progress = false;
};
/// Looks at the environment (NO_COLOR, TERM, COLUMNS, LC_ALL, LC_CTYPE, LANG) and, where `out` and
/// `err` are the process's own, at its terminal. Colours and progress only on a terminal.
Surfaces look_at_surfaces(const std::ostream& out, const std::ostream& err);

/// Fills closed standard streams with ones on which reading and writing fails: a file opened later
/// must not get the number of a closed stdout and receive what is printed there. Also has writes to
/// a closed pipe, or of a file beyond the limit on its size, fail instead of ending the process.
void guard_standard_streams();

/// While it lives, the first SIGHUP, SIGINT, SIGTERM or SIGUSR1 is only remembered; a second one
/// ends the process as it would have without this. One that another process passes on by
/// sigqueue(), as who watches this one does, is none beside the same sent to both. One at a time.
/// Signals that were ignored before stay so. The first one is answered at once, on the process's
/// stderr, with the text that is `told`, if any.
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
