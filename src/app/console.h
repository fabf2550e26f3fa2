// Where a command's words go: results to `out`, everything else to `err`, and how wide, colourful
// and interactive each is.
#pragma once

#include <chrono>
#include <iosfwd>
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

/// One line on a terminal, rewritten at most ten times a second and cleared at the end.
class ProgressLine : public Progress {
 public:
  explicit ProgressLine(Console& console) : console_(console) {}
  ~ProgressLine() override { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(std::int64_t states, std::int64_t candidates, std::int64_t simulated,
              std::optional<Duration> best) override;
  void clear();

 private:
  Console& console_;
  std::chrono::steady_clock::time_point last_;
  bool is_shown_ = false;
};

}  // namespace dapple
