// What a search has found so far, and what ends it early.
#pragma once

#include <chrono>
#include <optional>

#include "dapple/command_line/console.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/request.h"
#include "dapple/planner/request/planner.h"

namespace dapple::app {

/// One line on a terminal, rewritten at most ten times a second and cleared at the end; elsewhere a
/// line every ten seconds, so that a log shows that the search goes on; none where the console is
/// quiet. Says stop once the time limit, counted from here on, is over or a signal came.
class ProgressLine : public planner::Progress {
 public:
  ProgressLine(command_line::Console& console, std::optional<Duration> time_limit);
  ~ProgressLine() override { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(const planner::SearchProgress& progress) override;
  bool should_stop() override;
  /// Half of the time limit is for the first part.
  bool should_end_first_part() override;
  void clear();

  /// Why the search, or its first part, was told to stop; None as long as it was not.
  StopReason stop_reason() const;

 private:
  void rewrite_line();
  void add_line();

  command_line::Console& console_;
  command_line::SignalGuard signals_;
  std::optional<std::chrono::steady_clock::time_point> half_time_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  StopReason stop_reason_ = StopReason::None;
  bool has_ended_first_part_ = false;
  std::optional<planner::SearchProgress> latest_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
  bool is_shown_ = false;
};

}  // namespace dapple::app
