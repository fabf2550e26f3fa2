// Where a command's words go: results to `out`, everything else to `err`, and how wide, colourful
// and interactive each is.
#pragma once

#include <chrono>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

#include "dapple/planner/planner.h"
#include "dapple/report/show.h"

namespace dapple {

struct Console {
  std::ostream& out;  // kept until the command ends, then delivered as a whole
  std::ostream& err;
  TextStyle out_style;
  TextStyle err_style;
  bool shows_progress = false;  // err is a terminal
};

/// Looks at the environment (NO_COLOR, TERM, COLUMNS, LC_ALL, LC_CTYPE, LANG) and, where `out` and
/// `err` are the process's own, at its terminal. Colours and progress only on a terminal.
/// Results are collected in `results`.
Console open_console(const std::ostream& out, std::ostream& err, std::ostream& results);

/// Fills closed standard streams with ones on which reading and writing fails: a file opened later
/// must not get the number of a closed stdout and receive what is printed there. Also has writes to
/// a closed pipe fail instead of ending the process.
void guard_standard_streams();

/// While it lives, the first SIGINT or SIGTERM is only remembered; a second one ends the process as
/// it would have without this. One at a time. Signals that were ignored before stay so.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  bool has_received() const;

 private:
  struct Before;
  std::unique_ptr<Before> before_;
};

enum class StopReason { None, TimeLimit, Signal };

/// One line on a terminal, rewritten at most ten times a second and cleared at the end. Says stop
/// once the time limit, counted from here on, is over or a signal came.
class ProgressLine : public Progress {
 public:
  ProgressLine(Console& console, std::optional<Duration> time_limit);
  ~ProgressLine() override { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(const SearchProgress& progress) override;
  bool should_stop() override;
  void clear();

  /// Why the search was told to stop; None as long as it was not.
  StopReason stop_reason() const { return stop_reason_; }

 private:
  Console& console_;
  SignalGuard signals_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  StopReason stop_reason_ = StopReason::None;
  std::chrono::steady_clock::time_point last_;
  bool is_shown_ = false;
};

}  // namespace dapple
