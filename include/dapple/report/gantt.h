// Draws a timeline as a Gantt chart of characters.
#pragma once

#include <string>

#include "dapple/report/show.h"
#include "dapple/timeline/timeline.h"

namespace dapple::report {

/// Returns the chart: a legend, one row per lane and a time axis, all in one scale. A forward or
/// backward is a box that begins with the number of its micro-batch, omitted where it does not fit;
/// the kinds differ in fill, and in colour if the style has it. An all-reduce is shown where
/// nothing is computed at the same time, and an optimizer step takes at least one column. If the
/// whole iteration would leave a forward less room than for its number and one column, only the
/// start and the end of the iteration are drawn, with a gap between. There are at most
/// kMostGanttRows rows unless the style is verbose. Returns an empty text for an empty timeline.
/// O(actions + rows * width).
std::string draw_timeline(const Timeline& timeline, const TextStyle& style);

inline constexpr std::size_t kMostGanttRows = 32;

}  // namespace dapple::report
