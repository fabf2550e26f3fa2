// Shows on a terminal how many iterations are completed.
#pragma once

#include <chrono>
#include <cstdint>

#include "dapple/command_line/console.h"

namespace dapple::exec_app {

/// A line that is rewritten at most ten times a second and cleared at the end; shown only if err is
/// a terminal.
class IterationLine {
 public:
  explicit IterationLine(command_line::Console& console) : console_(console) {}
  ~IterationLine() { clear(); }
  IterationLine(const IterationLine&) = delete;
  IterationLine& operator=(const IterationLine&) = delete;

  void show(std::int64_t done, std::int64_t all);
  void clear();

 private:
  command_line::Console& console_;
  std::chrono::steady_clock::time_point last_;
  bool is_shown_ = false;
};

}  // namespace dapple::exec_app
