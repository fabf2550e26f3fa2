#include "progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>

namespace dapple {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(100);

}  // namespace

ProgressLine::ProgressLine(Console& console, std::optional<Duration> time_limit)
    : console_(console) {
  if (!time_limit) return;
  const auto now = std::chrono::steady_clock::now();
  half_time_ = now + std::chrono::nanoseconds(time_limit->ns / 2);
  deadline_ = now + std::chrono::nanoseconds(time_limit->ns);
}

bool ProgressLine::should_stop() {
  if (stop_reason_ != StopReason::None) return true;
  if (signals_.has_received()) {
    stop_reason_ = StopReason::Signal;
  } else if (deadline_ && std::chrono::steady_clock::now() >= *deadline_) {
    stop_reason_ = StopReason::TimeLimit;
  }
  return stop_reason_ != StopReason::None;
}

bool ProgressLine::should_end_first_part() {
  const bool is_half_over = half_time_ && std::chrono::steady_clock::now() >= *half_time_;
  has_ended_first_part_ = has_ended_first_part_ || is_half_over;
  return should_stop() || has_ended_first_part_;
}

StopReason ProgressLine::stop_reason() const {
  if (stop_reason_ != StopReason::None || !has_ended_first_part_) return stop_reason_;
  return StopReason::TimeLimit;
}

void ProgressLine::update(const SearchProgress& progress) {
  if (!console_.shows_progress) return;
  const auto now = std::chrono::steady_clock::now();
  if (is_shown_ && now - last_ < kProgressInterval) return;
  last_ = now;
  is_shown_ = true;
  std::string line;
  if (progress.best) line += fmt::format("best {}, ", show(*progress.best));
  if (progress.bound) line += fmt::format("bound {}, ", show(*progress.bound));
  if (progress.best && progress.bound) {
    const Duration bound = std::min(*progress.best, *progress.bound);
    const double gap = optimality_gap(*progress.best, bound);
    // Rounded up to what is shown.
    line += fmt::format("gap at most {}, ", show_percent(std::ceil(1000 * gap) / 1000));
  }
  if (progress.candidates > 0) line += show_count(progress.candidates) + " candidates, ";
  line += fmt::format("{} simulated, {} states", show_count(progress.simulated),
                      show_count(progress.states));
  line = shorten(line, static_cast<std::size_t>(console_.err_style.width - 1), console_.err_style);
  console_.err << "\r\x1b[K" << line << std::flush;
}

void ProgressLine::clear() {
  if (is_shown_) console_.err << "\r\x1b[K" << std::flush;
  is_shown_ = false;
}

}  // namespace dapple
