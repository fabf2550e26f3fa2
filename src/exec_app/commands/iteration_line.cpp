#include "exec_app/commands/iteration_line.h"

#include <fmt/format.h>

#include <ostream>

namespace dapple::exec_app {

void IterationLine::show(std::int64_t done, std::int64_t all) {
  constexpr std::chrono::milliseconds kPause(100);
  const auto now = std::chrono::steady_clock::now();
  if (!console_.shows_progress || console_.is_quiet || (is_shown_ && now - last_ < kPause)) return;
  last_ = now;
  is_shown_ = true;
  console_.err << fmt::format("\r\x1b[Kiteration {} of {}", done, all) << std::flush;
}

void IterationLine::clear() {
  if (is_shown_) console_.err << "\r\x1b[K" << std::flush;
  is_shown_ = false;
}

}  // namespace dapple::exec_app
