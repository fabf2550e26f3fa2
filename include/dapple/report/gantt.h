// A timeline drawn with characters.
#pragma once

#include <string>

#include "dapple/report/show.h"
#include "dapple/timeline/timeline.h"

namespace dapple::report {

/// One row per lane, time to the right, in one scale: the number of the micro-batch at the start of
/// its box, forwards and backwards filled differently (and coloured, if the style says so); an
/// all-reduce where nothing is computed beside it; the optimizer step, at least one column wide.
/// Where the whole iteration would leave less than a number and one column for a forward, its start
/// and its end are drawn, with a cut between. Below the rows an axis, above them a legend.
/// A number that has no room is left out. At most kMostGanttRows rows, unless the style is verbose.
/// Nothing for an empty timeline. O(actions + rows * width).
std::string draw_timeline(const Timeline& timeline, const TextStyle& style);

inline constexpr std::size_t kMostGanttRows = 32;

}  // namespace dapple::report
