// Shows what a search has found so far, and ends it early.
#pragma once

#include <chrono>
#include <optional>

#include "dapple/command_line/console.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/request.h"
#include "dapple/planner/request/planner_options.h"

namespace dapple::app {

/// The progress of a search: on a terminal one line that is rewritten at most ten times a second
/// and cleared at the end; elsewhere a line every ten seconds, so that a log shows that the search
/// continues; nothing if the console is quiet. Stops the search when a signal is received or the
/// time limit, counted from construction, has passed.
class ProgressLine : public planner::Progress {
 public:
  ProgressLine(command_line::Console& console, std::optional<Duration> time_limit);
  ~ProgressLine() override { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(const planner::SearchProgress& progress) override;
  bool should_stop() override;
  bool should_end_part(double part) override;
  void clear();
  /// Begins anew for another search with the time limit. A signal that was received stops it, too.
  void restart(std::optional<Duration> time_limit);

  /// The reason why the search, or a part of it, was stopped; None if it was not.
  StopReason stop_reason() const;

 private:
  bool has_passed(double part) const;
  void rewrite_line();
  void add_line();

  command_line::Console& console_;
  command_line::SignalGuard signals_;
  std::optional<std::chrono::nanoseconds> time_limit_;
  StopReason stop_reason_ = StopReason::None;
  bool has_ended_part_ = false;
  std::optional<planner::SearchProgress> latest_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
  bool is_shown_ = false;
};

}  // namespace dapple::app
