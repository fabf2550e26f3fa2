#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dapple/report/show.h"
#include "dapple/report/summary.h"
#include "dapple/timeline/statistics.h"
#include "report/figures.h"
#include "report/palette.h"

namespace dapple::report {
namespace {

/// Lists the nonzero parts as shares of the whole, the largest first: "backward 61.1 %, forward
/// 36.8 %".
std::string shares_text(std::vector<std::pair<std::string, Duration>> parts, Wide whole) {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, time] : parts) {
    if (time == Duration{}) continue;
    const double share = static_cast<double>(time.ns) / static_cast<double>(whole);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, show_percent(share));
  }
  return text.empty() ? "none" : text;
}

std::string idle_text(const Timeline& timeline, const std::vector<LaneStatistics>& lanes,
                      Duration iteration) {
  Wide device_time = 0;
  for (const Timeline::LaneName& lane : timeline.lanes) {
    device_time += Wide{iteration.ns} * static_cast<std::int64_t>(lane.devices.size());
  }
  const IdleTime idle = idle_device_time(timeline, lanes);
  std::vector<std::pair<std::string, Duration>> parts;
  for (const IdleCause& cause : kIdleCauses) parts.emplace_back(cause.name, idle.*cause.part);
  return shares_text(std::move(parts), device_time) + " of device time";
}

std::string path_text(const Timeline& timeline, const std::vector<PathSegment>& path,
                      Duration iteration) {
  std::vector<std::pair<std::string, Duration>> parts;
  for (const PathShare& share : shares_of(timeline, path)) {
    parts.emplace_back(share.kind ? style_of(*share.kind).words : "unexplained", share.time);
  }
  return shares_text(std::move(parts), iteration.ns);
}

std::string exposed_text(const Timeline& timeline, const std::vector<LaneStatistics>& lanes) {
  const auto most = std::max_element(
      lanes.begin(), lanes.end(),
      [](const LaneStatistics& a, const LaneStatistics& b) { return a.exposed < b.exposed; });
  const auto lane = index_at<LaneIndex>(static_cast<std::size_t>(most - lanes.begin()));
  return fmt::format("at most {} of {} not hidden by computation, on {}",
                     show(most->exposed, most->communicating), show(most->communicating),
                     lane_title(timeline, lane));
}

/// Lists the titles of lanes, each title once: "stage 1, stage 3 and 2 more".
std::string titles_of(const Timeline& timeline, const std::vector<LaneIndex>& lanes,
                      const TextStyle& style) {
  std::vector<std::string> titles;
  for (const LaneIndex lane : lanes) titles.push_back(lane_title(timeline, lane));
  titles.erase(std::unique(titles.begin(), titles.end()), titles.end());
  constexpr std::size_t kMostOnTerminal = 6;
  const bool is_short = style.wraps && !style.verbose;
  const std::size_t more = is_short ? titles.size() - std::min(titles.size(), kMostOnTerminal) : 0;
  titles.resize(titles.size() - more);
  return fmt::format("{}", fmt::join(titles, ", ")) +
         (more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

std::string write_statistics(const Timeline& timeline, const TextStyle& style,
                             Duration collectives) {
  if (timeline.actions.empty()) return {};
  const auto [lanes, path] = analyse(timeline);
  // The critical path ends with the iteration.
  const Duration iteration = path.empty() ? Duration{} : path.back().end;
  std::string text;
  const auto add = [&](const std::string& heading, const std::string& words) {
    constexpr std::size_t kIndent = 15;
    const std::string padded = fmt::format("{:<{}}", heading, kIndent);
    text += paint(padded, Ink::Strong, style) + fill_lines(words, kIndent, style) + '\n';
  };
  add("Idle", idle_text(timeline, lanes, iteration));
  add("Critical path", path_text(timeline, path, iteration));
  add("Communication", exposed_text(timeline, lanes));
  if (collectives > Duration{}) {
    add("Collectives",
        fmt::format("{} of the iteration, those within layers, which are a part of forwards and "
                    "backwards above and not of communication",
                    show_percent(static_cast<double>(collectives.ns) /
                                 static_cast<double>(std::max<std::int64_t>(iteration.ns, 1)))));
  }
  const std::vector<LaneIndex> slow = stragglers(lanes);
  if (!slow.empty()) {
    add("Stragglers", titles_of(timeline, slow, style) + ": busy over 5 % longer than the median");
  }
  return text;
}

}  // namespace dapple::report
