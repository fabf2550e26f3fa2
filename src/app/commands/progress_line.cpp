#include "app/commands/progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "dapple/plan/optimality.h"
#include "dapple/planner/request/planner_options.h"

namespace dapple::app {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(100);
constexpr auto kLineInterval = std::chrono::seconds(10);

}  // namespace

ProgressLine::ProgressLine(command_line::Console& console, std::optional<Duration> time_limit)
    : console_(console) {
  restart(time_limit);
}

void ProgressLine::restart(std::optional<Duration> time_limit) {
  clear();
  start_ = std::chrono::steady_clock::now();
  last_ = start_;
  time_limit_.reset();
  stop_reason_ = StopReason::None;
  has_ended_part_ = false;
  latest_.reset();
  if (time_limit) time_limit_ = std::chrono::nanoseconds(time_limit->ns);
}

bool ProgressLine::should_stop() {
  if (!console_.is_quiet && !console_.shows_progress) add_line();
  if (stop_reason_ != StopReason::None) return true;
  if (signals_.has_received()) {
    stop_reason_ = StopReason::Signal;
  } else if (has_passed(1)) {
    stop_reason_ = StopReason::TimeLimit;
  }
  return stop_reason_ != StopReason::None;
}

bool ProgressLine::should_end_part(double part) {
  const bool has_ended = has_passed(part);
  has_ended_part_ = has_ended_part_ || has_ended;
  return should_stop() || has_ended;
}

/// Whether this part of the time limit is over.
bool ProgressLine::has_passed(double part) const {
  return time_limit_ && std::chrono::steady_clock::now() - start_ >= *time_limit_ * part;
}

StopReason ProgressLine::stop_reason() const {
  if (stop_reason_ != StopReason::None || !has_ended_part_) return stop_reason_;
  return StopReason::TimeLimit;
}

namespace {

/// Returns the parts of the line, the most important ones first.
std::vector<std::string> parts_of(const planner::SearchProgress& progress) {
  std::vector<std::string> parts;
  if (progress.best) parts.push_back("best " + report::show(*progress.best));
  if (progress.bound) {
    parts.push_back("bound " +
                    report::show(*progress.bound, progress.best.value_or(*progress.bound)));
  }
  if (progress.best && progress.bound) {
    const Duration bound = std::min(*progress.best, *progress.bound);
    const double gap = optimality_gap(*progress.best, bound);
    // Rounded up to the decimals shown.
    parts.push_back("gap at most " + report::show_percent(std::ceil(1000 * gap) / 1000));
  }
  if (!progress.part.empty()) parts.push_back(progress.part);
  parts.push_back(report::show_count(progress.states) + " partial plans");
  if (progress.candidates > 0)
    parts.push_back(report::show_count(progress.candidates) + " complete");
  parts.push_back(report::show_count(progress.simulated) + " simulated");
  return parts;
}

}  // namespace

void ProgressLine::update(const planner::SearchProgress& progress) {
  if (console_.is_quiet) return;
  latest_ = progress;
  if (console_.shows_progress) {
    rewrite_line();
  } else {
    add_line();
  }
}

/// Shows as many whole parts as fit on the line.
void ProgressLine::rewrite_line() {
  const auto now = std::chrono::steady_clock::now();
  if (is_shown_ && now - last_ < kProgressInterval) return;
  last_ = now;
  is_shown_ = true;
  std::string line;
  for (const std::string& part : parts_of(*latest_)) {
    const std::string longer = line.empty() ? part : line + ", " + part;
    if (longer.size() >= static_cast<std::size_t>(console_.err_style.width)) break;
    line = longer;
  }
  console_.err << "\r\x1b[K" << line << std::flush;
}

void ProgressLine::add_line() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kLineInterval) return;
  last_ = now;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - start_).count();
  const std::string found =
      latest_ ? fmt::format("{}", fmt::join(parts_of(*latest_), ", ")) : "still searching";
  console_.err << fmt::format("after {} s: {}\n", seconds, found) << std::flush;
}

void ProgressLine::clear() {
  if (is_shown_) console_.err << "\r\x1b[K" << std::flush;
  is_shown_ = false;
}

}  // namespace dapple::app
