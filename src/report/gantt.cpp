#include "dapple/report/gantt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "report/ticks.h"

namespace dapple::report {
namespace {

enum class Fill : std::uint8_t { Idle, Forward, Backward, Weights, AllReduce, Step };
constexpr std::size_t kFills = 6;

/// The content of one column of a row.
struct Mark {
  Fill fill = Fill::Idle;
  // A digit of the micro-batch number, shown on the fill; 0 if there is none.
  char digit = 0;
  // Whether the number of the micro-batch is odd: consecutive ones differ in shade.
  bool odd = false;
};

/// The columns of the whole iteration, of which a part at the start and a part at the end are
/// shown.
struct Window {
  double columns_per_ns = 0;
  // The columns of the whole iteration and one for the last optimizer step.
  std::int64_t columns = 0;
  // Columns [0, head) and [columns - tail, columns) are shown; tail is 0 if nothing is cut.
  std::int64_t head = 0;
  std::int64_t tail = 0;
  // Actions within [cut_begin, cut_end] are not shown; the interval is empty if nothing is cut.
  Duration cut_begin;
  Duration cut_end{-1};

  std::int64_t column_of(Duration moment) const {
    return std::llround(static_cast<double>(moment.ns) * columns_per_ns);
  }
  std::int64_t shown() const { return head + tail; }
  /// Returns the position of a column on the screen, or -1 if it is not shown.
  std::int64_t screen(std::int64_t column) const {
    if (column < 0 || column >= columns) return -1;
    if (column < head) return column;
    return column >= columns - tail ? head + column - (columns - tail) : -1;
  }
};

constexpr std::int64_t kCutWidth = 3;

/// Returns the fill of a computation on a micro-batch, and Idle for any other kind.
Fill fill_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return Fill::Forward;
    case ActionKind::Backward:
    case ActionKind::InputGradient:
      return Fill::Backward;
    case ActionKind::WeightGradient:
      return Fill::Weights;
    default:
      return Fill::Idle;
  }
}

bool is_pass(const TimedAction& timed) {
  return fill_of(timed.action.kind) != Fill::Idle;
}

/// The figures from which the scale of a drawing is chosen.
struct Landmarks {
  // The shortest forward or backward that is not negligible, in nanoseconds.
  std::int64_t shortest_pass = 0;
  // The number of digits of the largest micro-batch number.
  int digits = 1;
  Duration first_backward_end;
};

Landmarks find_landmarks(const Timeline& timeline, Duration iteration) {
  Duration longest;
  std::int32_t last = 0;
  Landmarks marks;
  marks.first_backward_end = iteration;
  for (const TimedAction& timed : timeline.actions) {
    if (!is_pass(timed)) continue;
    longest = std::max(longest, timed.end - timed.start);
    last = std::max(last, timed.action.index);
    if (fill_of(timed.action.kind) == Fill::Backward) {
      marks.first_backward_end = std::min(marks.first_backward_end, timed.end);
    }
  }
  // Computations of less than 1/8 of the longest are ignored, so that they do not stretch the
  // drawing.
  marks.shortest_pass = longest.ns;
  for (const TimedAction& timed : timeline.actions) {
    const std::int64_t length = (timed.end - timed.start).ns;
    if (is_pass(timed) && length * 8 >= longest.ns) {
      marks.shortest_pass = std::min(marks.shortest_pass, length);
    }
  }
  marks.digits = static_cast<int>(fmt::formatted_size("{}", last));
  return marks;
}

/// Returns the columns per nanosecond at which the shortest non-negligible computation has room for
/// its number and one column more. The scale is smaller, down to two columns for that computation,
/// if the first `head` columns would not show the pipeline's filling and its first backward
/// otherwise.
double readable_scale(const Timeline& timeline, Duration iteration, std::int64_t head) {
  const Landmarks marks = find_landmarks(timeline, iteration);
  if (marks.shortest_pass <= 0) return 0;
  const auto shortest = static_cast<double>(marks.shortest_pass);
  const auto fill = static_cast<double>(std::max<std::int64_t>(marks.first_backward_end.ns, 1));
  const double most = std::min(marks.digits + 1, 6) / shortest;
  return std::clamp(0.9 * static_cast<double>(head) / fill, 2 / shortest, most);
}

Window choose_window(const Timeline& timeline, Duration iteration, std::int64_t width) {
  Window window;
  // The start gets more room because it shows the filling of the pipeline, its order and its first
  // backwards.
  window.tail = (width - kCutWidth) * 2 / 5;
  window.head = width - kCutWidth - window.tail;
  const auto total = static_cast<double>(std::max<std::int64_t>(iteration.ns, 1));
  const double whole = static_cast<double>(width - 1) / total;
  const double readable = readable_scale(timeline, iteration, window.head);
  window.columns_per_ns = std::max(whole, readable);
  window.columns = readable <= whole ? width : std::llround(total * readable) + 1;
  if (window.columns <= width) window.head = window.columns, window.tail = 0;
  if (window.tail == 0) return window;
  // The cut is a column shorter on either side because moments are rounded to columns.
  const auto moment_of = [&](std::int64_t column) {
    return Duration{std::llround(static_cast<double>(column) / window.columns_per_ns)};
  };
  window.cut_begin = moment_of(window.head + 1);
  window.cut_end = moment_of(window.columns - window.tail - 2);
  return window;
}

using Row = std::vector<Mark>;

/// Returns the column at which the number of a box over columns [begin, end) begins: the first of
/// them that is shown, or nothing if the number does not fit there, as a truncated number would be
/// a different one.
std::optional<std::int64_t> number_column(const Window& window, std::int64_t begin,
                                          std::int64_t end, std::size_t digits) {
  const std::int64_t tail_begin = window.columns - window.tail;
  const bool is_in_head = begin < window.head;
  const std::int64_t first = is_in_head ? begin : std::max(begin, tail_begin);
  const std::int64_t last = is_in_head ? std::min(end, window.head) : end;
  return last - first >= static_cast<std::int64_t>(digits) ? std::optional(first) : std::nullopt;
}

void place_pass(Row& row, const Window& window, const TimedAction& timed) {
  const std::int64_t begin = window.column_of(timed.start);
  const std::int64_t end = window.column_of(timed.end);
  const Mark mark{.fill = fill_of(timed.action.kind), .odd = timed.action.index % 2 == 1};
  const std::string number = fmt::format("{}", timed.action.index);
  const std::optional<std::int64_t> first = number_column(window, begin, end, number.size());
  for (std::int64_t column = begin; column < end; ++column) {
    const std::int64_t place = window.screen(column);
    if (place < 0) continue;
    Mark& target = row[static_cast<std::size_t>(place)];
    target = mark;
    if (!first || column < *first) continue;
    const auto offset = static_cast<std::size_t>(column - *first);
    if (offset < number.size()) target.digit = number[offset];
  }
}

/// The columns [begin, end) of the whole iteration.
struct Columns {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Fills those of the columns that are idle.
void place_beside(Row& row, const Window& window, Columns columns, Fill fill) {
  for (std::int64_t column = columns.begin; column < columns.end; ++column) {
    const std::int64_t place = window.screen(column);
    if (place < 0) continue;
    Mark& target = row[static_cast<std::size_t>(place)];
    if (target.fill == Fill::Idle) target.fill = fill;
  }
}

void place_step(Row& row, const Window& window, const TimedAction& timed) {
  const std::int64_t begin = std::min(window.column_of(timed.start), window.columns - 1);
  const std::int64_t end = std::max(window.column_of(timed.end), begin + 1);
  for (std::int64_t column = begin; column < end; ++column) {
    const std::int64_t place = window.screen(column);
    if (place >= 0) row[static_cast<std::size_t>(place)] = {.fill = Fill::Step};
  }
}

std::vector<Row> fill_rows(const Timeline& timeline, const Window& window, std::size_t count) {
  std::vector<Row> rows(count, Row(static_cast<std::size_t>(window.shown())));
  std::vector<const TimedAction*> drawn;
  for (const TimedAction& timed : timeline.actions) {
    const bool is_cut_out = timed.start >= window.cut_begin && timed.end <= window.cut_end;
    if (!is_cut_out && timed.lane.position() < count) drawn.push_back(&timed);
  }
  const auto for_each = [&](auto visit) {
    for (const TimedAction* timed : drawn) visit(rows[timed->lane.position()], *timed);
  };
  for_each([&](Row& row, const TimedAction& timed) {
    if (is_pass(timed)) place_pass(row, window, timed);
  });
  for_each([&](Row& row, const TimedAction& timed) {
    const std::int64_t begin = window.column_of(timed.start);
    if (reduces(timed.action.kind)) {
      place_beside(row, window, {begin, window.column_of(timed.end)}, Fill::AllReduce);
    } else if (is_pass(timed)) {
      // A computation that rounds to zero columns still gets one where there is room.
      place_beside(row, window, {begin, begin + 1}, fill_of(timed.action.kind));
    }
  });
  for_each([&](Row& row, const TimedAction& timed) {
    if (timed.action.kind == ActionKind::OptimizerStep) place_step(row, window, timed);
  });
  return rows;
}

std::string_view filler(Fill fill, const TextStyle& style) {
  // Boxes are drawn by background colour, or by texture without colours.
  static constexpr std::array<const char*, kFills> kColored{" ", " ", " ", " ", "~", "*"};
  static constexpr std::array<const char*, kFills> kShaded{" ", "░", "▓", "▒", "≈", "*"};
  static constexpr std::array<const char*, kFills> kPlain{" ", "-", "=", "+", "~", "*"};
  const auto& fills = style.color ? kColored : style.unicode ? kShaded : kPlain;
  return fills[static_cast<std::size_t>(fill)];
}

const char* color_of(const Mark& mark) {
  switch (mark.fill) {
    case Fill::Forward:
      return mark.odd ? "30;104" : "30;106";  // blue, cyan
    case Fill::Backward:
      return mark.odd ? "30;102" : "30;42";  // greens
    case Fill::Weights:
      return mark.odd ? "30;46" : "30;44";
    case Fill::AllReduce:
      return "30;45";
    case Fill::Step:
      return "30;103";
    case Fill::Idle:
      break;
  }
  return "";
}

std::string row_text(const Row& row, const Window& window, const TextStyle& style) {
  std::string text;
  std::string current;
  for (std::size_t place = 0; place < row.size(); ++place) {
    const Mark& mark = row[place];
    const std::string color = style.color ? color_of(mark) : "";
    const bool at_cut = window.tail > 0 && place == static_cast<std::size_t>(window.head);
    if (color != current || (at_cut && !current.empty())) {
      if (!current.empty()) text += "\x1b[0m";
      current.clear();
    }
    if (at_cut) text += style.unicode ? " ⋯ " : " : ";
    if (color != current) {
      text += fmt::format("\x1b[{}m", color);
      current = color;
    }
    if (mark.digit != 0) {
      text += mark.digit;
    } else {
      text += filler(mark.fill, style);
    }
  }
  if (!current.empty()) text += "\x1b[0m";
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

std::string axis_text(const Window& window, Duration iteration) {
  const auto width = static_cast<std::size_t>(window.shown());
  std::string line(width, ' ');
  const Duration step = tick_length(window.columns_per_ns, 12);
  const auto head = static_cast<std::size_t>(window.head);
  // Ticks in the gap are skipped, as a long iteration has very many.
  const auto tail_begin = static_cast<std::int64_t>(
      static_cast<double>(window.columns - window.tail) / window.columns_per_ns);
  for (std::int64_t moment = 0; moment <= iteration.ns;) {
    const std::int64_t place = window.screen(window.column_of({moment}));
    if (place >= 0) {
      const std::string text = "|" + tick_text({moment}, iteration);
      const auto begin = static_cast<std::size_t>(place);
      const std::size_t limit = begin < head ? head : width;
      if (begin + text.size() <= limit) line.replace(begin, text.size(), text);
    } else if (window.column_of({moment}) >= window.head && moment < tail_begin) {
      moment = tail_begin / step.ns * step.ns;
      if (window.screen(window.column_of({moment})) >= 0) continue;
    }
    moment += step.ns;
  }
  if (window.tail > 0) line.insert(head, static_cast<std::size_t>(kCutWidth), ' ');
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::vector<std::string> lane_labels(const Timeline& timeline, std::size_t count) {
  std::vector<std::string> labels;
  std::size_t widest = 0;
  bool chunks = false;
  std::map<std::vector<StageIndex>, std::int32_t> lanes_before;
  for (std::size_t lane = 0; lane < count; ++lane) {
    const std::vector<StageIndex>& stages = timeline.lanes[lane].stages;
    const std::int32_t replica = lanes_before[stages]++;
    const bool alone = replica == 0 && (lane + 1 == timeline.lanes.size() ||
                                        timeline.lanes[lane + 1].stages != stages);
    std::string label;
    for (const StageIndex stage : stages) {
      label += fmt::format("{}{}", label.empty() ? "" : ",", stage.value);
    }
    chunks = chunks || stages.size() > 1;
    labels.push_back(alone ? label : fmt::format("{}.{}", label, replica));
    widest = std::max(widest, labels.back().size());
  }
  for (std::string& label : labels) {
    label = fmt::format("  {} {:>{}} ", chunks ? "stages" : "stage", label, widest);
  }
  return labels;
}

std::string legend(const std::vector<Row>& rows, const TextStyle& style) {
  std::array<bool, kFills> seen{};
  for (const Row& row : rows) {
    for (const Mark& mark : row) seen[static_cast<std::size_t>(mark.fill)] = true;
  }
  const auto box = [&style](Fill fill, std::string_view text) {
    if (!style.color) return std::string{text};
    return fmt::format("\x1b[{}m{}\x1b[0m", color_of({.fill = fill}), text);
  };
  const auto numbered = [&](Fill fill) {
    return box(fill, fmt::format("0{0}{0}", filler(fill, style)));
  };
  const auto single = [&](Fill fill) { return box(fill, filler(fill, style)); };
  std::string text = fmt::format("{} forward  {} backward of micro-batch 0",
                                 numbered(Fill::Forward), numbered(Fill::Backward));
  if (seen[static_cast<std::size_t>(Fill::Weights)]) {
    text += "  " + numbered(Fill::Weights) + " its weights' gradients";
  }
  if (seen[static_cast<std::size_t>(Fill::AllReduce)]) {
    text += "  " + single(Fill::AllReduce) + " all-reduce";
  }
  if (seen[static_cast<std::size_t>(Fill::Step)]) text += "  " + single(Fill::Step) + " step";
  return text;
}

}  // namespace

std::string draw_timeline(const Timeline& timeline, const TextStyle& style) {
  if (timeline.actions.empty()) return {};
  const std::size_t count =
      style.verbose ? timeline.lanes.size() : std::min(timeline.lanes.size(), kMostGanttRows);
  const std::vector<std::string> labels = lane_labels(timeline, count);
  const auto margin = static_cast<std::int64_t>(labels.front().size());
  const Duration iteration = iteration_time(timeline);
  const Window window =
      choose_window(timeline, iteration, std::max<std::int64_t>(style.width - margin, 20));
  const std::vector<Row> rows = fill_rows(timeline, window, count);

  std::string text = paint("Timeline", Ink::Strong, style) + "  " + legend(rows, style) + '\n';
  for (std::size_t row = 0; row < count; ++row) {
    text += labels[row] + row_text(rows[row], window, style) + '\n';
  }
  const std::string blanks(static_cast<std::size_t>(margin), ' ');
  if (count < timeline.lanes.size()) {
    text += fmt::format("{}and {} rows more (-v)\n", blanks, timeline.lanes.size() - count);
  }
  return text + blanks + axis_text(window, iteration) + '\n';
}

}  // namespace dapple::report
