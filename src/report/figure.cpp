#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "dapple/report/page.h"
#include "dapple/report/show.h"
#include "report/figures.h"
#include "report/palette.h"
#include "report/ticks.h"

namespace dapple::report {
namespace {

// Lengths are in SVG units.
constexpr double kWidth = 720;
// The width of the labels to the left of the plot.
constexpr double kLeastLabels = 50;
constexpr double kMostLabels = 200;
// The gap between a label and the plot.
constexpr double kLabelGap = 6;
constexpr double kMargin = 8;
constexpr double kLegend = 22;
// The height of a computation.
constexpr double kBar = 14;
// The height of all lanes together if there are too many for full rows.
constexpr double kBars = 500;
constexpr std::size_t kMostFullRows = 32;
// The height of a transfer or reduction.
constexpr double kThin = 3;
constexpr double kBetweenRows = 6;
// The height of a line of text.
constexpr double kLine = 11;
// Boxes narrower than this may be omitted.
constexpr double kNarrow = 0.5;
// Widths of text with a height of 9 units: an average letter, a digit with some room, and an
// average character of a label, which consists mostly of digits.
constexpr double kLetter = 4.5;
constexpr double kDigit = 5.1;
constexpr double kLabelLetter = 4.9;

/// A row of boxes, which belongs to a stream of one lane.
struct Row {
  double y = 0;
  double height = 0;
  // The right end of the last box.
  double drawn_until = 0;
};

/// Returns the title of a lane, which names all of its stages; stages that do not fit are replaced
/// by an ellipsis: "stages 0,8,16,…,120".
std::string label_of(const Timeline& timeline, LaneIndex lane) {
  constexpr auto kMostLetters = static_cast<std::size_t>((kMostLabels - kLabelGap) / kLabelLetter);
  std::string title = lane_title(timeline, lane);
  if (title.size() <= kMostLetters) return title;
  const std::string tail = title.substr(title.rfind(','));
  if (tail.size() + 1 >= kMostLetters) return title;
  title.resize(kMostLetters - tail.size() - 1);
  return title.substr(0, title.rfind(',')) + ",…" + tail;
}

/// Returns the width of the widest label, within its limits.
double labels_width(const Timeline& timeline) {
  std::size_t letters = 0;
  for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
    letters = std::max(letters, label_of(timeline, index_at<LaneIndex>(l)).size());
  }
  return std::clamp(kLabelGap + kLabelLetter * static_cast<double>(letters), kLeastLabels,
                    kMostLabels);
}

class FigureWriter {
 public:
  explicit FigureWriter(const ReportSubject& subject)
      : timeline_(subject.timeline),
        subject_(subject),
        labels_(labels_width(subject.timeline)),
        units_per_ns_((kWidth - labels_ - kMargin) / static_cast<double>(std::max<std::int64_t>(
                                                         iteration_time(subject.timeline).ns, 1))),
        has_full_rows_(subject.timeline.lanes.size() <= kMostFullRows) {
    if (!has_full_rows_) bar_ = kBars / static_cast<double>(subject.timeline.lanes.size());
  }

  std::string write() &&;

 private:
  using RowKey = std::tuple<LaneIndex, Stream, std::int32_t>;

  void lay_out();
  bool is_drawn(ActionKind kind) const;
  void write_head();
  void write_legend();
  void write_labels();
  void write_axis();
  void write_box(const TimedAction& timed, Row& row);
  double x_of(Duration moment) const {
    return labels_ + static_cast<double>(moment.ns) * units_per_ns_;
  }
  template <class... Values>
  void line(fmt::format_string<Values...> form, Values&&... values) {
    text_ += fmt::format(form, std::forward<Values>(values)...) + '\n';
  }

  const Timeline& timeline_;
  const ReportSubject& subject_;
  double labels_;
  double units_per_ns_;
  // The row of each action within its stream.
  std::vector<std::int32_t> places_;
  std::map<RowKey, Row> rows_;
  // Whether rows show transfers, reductions and numbers.
  bool has_full_rows_ = true;
  double bar_ = kBar;
  double bottom_ = 0;
  std::string text_;
};

std::string FigureWriter::write() && {
  places_ = rows_of(timeline_);
  lay_out();
  write_head();
  write_legend();
  write_axis();
  for (std::size_t i = 0; i < timeline_.actions.size(); ++i) {
    const TimedAction& timed = timeline_.actions[i];
    if (!is_drawn(timed.action.kind)) continue;
    write_box(timed, rows_[{timed.lane, stream_of(timed.action.kind), places_[i]}]);
  }
  write_labels();
  line("</svg>");
  return std::move(text_);
}

bool FigureWriter::is_drawn(ActionKind kind) const {
  return has_full_rows_ || stream_of(kind) == Stream::Compute;
}

void FigureWriter::lay_out() {
  for (std::size_t i = 0; i < timeline_.actions.size(); ++i) {
    const TimedAction& timed = timeline_.actions[i];
    if (!is_drawn(timed.action.kind)) continue;
    rows_[{timed.lane, stream_of(timed.action.kind), places_[i]}] = {};
  }
  double y = kLegend;
  LaneIndex lane{0};
  for (auto& [key, row] : rows_) {
    if (std::get<LaneIndex>(key) != lane && has_full_rows_) y += kBetweenRows;
    lane = std::get<LaneIndex>(key);
    row = {.y = y, .height = std::get<Stream>(key) == Stream::Compute ? bar_ : kThin};
    y += row.height + (has_full_rows_ ? 1 : 0);
  }
  bottom_ = y + 2;
}

void FigureWriter::write_head() {
  const double height = bottom_ + 26;
  line(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1:.0f}" )"
       R"(viewBox="0 0 {0} {1:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="9">)",
       kWidth, height);
  line("<title>{} on {}: {}</title>", escape_markup(subject_.document.profile.name),
       escape_markup(subject_.document.topology.name),
       escape_markup(shape_of(subject_.document.plan)));
  line(R"(<rect width="{}" height="{:.0f}" fill="#ffffff"/>)", kWidth, height);
}

void FigureWriter::write_legend() {
  const auto width_of = [](const KindStyle& style) {
    return 16 + kLetter * static_cast<double>(style.words.size()) + 12;
  };
  std::vector<KindStyle> used;
  double width = 0;
  for (const KindStyle& style : kind_styles()) {
    const bool is_used =
        is_drawn(style.kind) &&
        std::any_of(timeline_.actions.begin(), timeline_.actions.end(),
                    [&style](const TimedAction& timed) { return timed.action.kind == style.kind; });
    if (!is_used) continue;
    used.push_back(style);
    width += width_of(style);
  }
  // The legend begins at the left edge of the plot if it fits there.
  double x = std::max(std::min(labels_, kWidth - width), kMargin);
  for (const KindStyle& style : used) {
    const double height = stream_of(style.kind) == Stream::Compute ? 8 : kThin;
    line(R"(<rect x="{:.1f}" y="{:.1f}" width="12" height="{:.0f}" fill="{}"/>)", x, 9 - height / 2,
         height, color_of(style.tone, StageIndex{0}, Ground::Light));
    line(R"(<text x="{:.1f}" y="12" fill="#1b2028">{}</text>)", x + 16, style.words);
    x += width_of(style);
  }
}

void FigureWriter::write_labels() {
  const auto every = static_cast<std::size_t>(std::ceil(kLine / bar_));
  for (std::size_t l = 0; l < timeline_.lanes.size(); l += every) {
    const auto row = rows_.find({index_at<LaneIndex>(l), Stream::Compute, 0});
    if (row == rows_.end()) continue;
    line(R"(<text x="{:.0f}" y="{:.1f}" text-anchor="end" fill="#1b2028">{}</text>)",
         labels_ - kLabelGap, row->second.y + bar_ / 2 + 3.2,
         label_of(timeline_, index_at<LaneIndex>(l)));
  }
}

void FigureWriter::write_axis() {
  const Duration iteration = iteration_time(timeline_);
  const Duration step = tick_length(units_per_ns_, 90);
  for (Duration moment; moment <= iteration; moment += step) {
    const double x = x_of(moment);
    line(R"(<path d="M{:.1f} {:.0f}V{:.0f}" stroke="#d9dde3" stroke-width="0.6"/>)", x, kLegend - 3,
         bottom_ + 3);
    const bool at_end = x > kWidth - 30;
    line(R"(<text x="{:.1f}" y="{:.0f}" text-anchor="{}" fill="#1b2028">{}</text>)",
         at_end ? kWidth - 2 : x, bottom_ + 13, at_end ? "end" : "middle",
         tick_text(moment, iteration));
  }
  line(R"(<path d="M{:.1f} {:.0f}H{:.1f}" stroke="#5d6673" stroke-width="0.6"/>)", labels_, bottom_,
       kWidth - kMargin);
  line(R"(<text x="{:.0f}" y="{:.0f}" text-anchor="end" fill="#1b2028">time</text>)", labels_ - 14,
       bottom_ + 13);
}

void FigureWriter::write_box(const TimedAction& timed, Row& row) {
  const KindStyle& style = style_of(timed.action.kind);
  const double x = x_of(timed.start);
  const double width = x_of(timed.end) - x;
  if (width < kNarrow && x + width < row.drawn_until + kNarrow / 2) return;
  const double shown = std::max(width > 3 ? width - kNarrow : width, kNarrow);
  row.drawn_until = x + shown;
  line(R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.0f}" fill="{}"/>)", x, row.y, shown,
       row.height, color_of(style.tone, timed.action.stage, Ground::Light));
  const std::string number = fmt::format("{}", timed.action.index);
  const bool has_room = width >= kDigit * static_cast<double>(number.size()) + 2;
  if (!style.has_number || row.height != kBar || !has_room) return;
  line(R"(<text x="{:.2f}" y="{:.1f}" text-anchor="middle" fill="{}">{}</text>)", x + shown / 2,
       row.y + 10.2, is_pale(style.tone) ? "#14171c" : "#ffffff", number);
}

}  // namespace

std::string write_figure(const ReportSubject& subject) {
  return FigureWriter(subject).write();
}

}  // namespace dapple::report
