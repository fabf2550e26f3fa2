#include "dapple/report/trade_off_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "dapple/report/page.h"

namespace dapple::report {
namespace {

constexpr double kPlotWidth = 680;
constexpr double kPlotHeight = 440;
constexpr double kPlotLeft = 80;
constexpr double kPlotRight = 30;
constexpr double kPlotTop = 46;
constexpr double kPlotBottom = 60;
constexpr const char* kPlotInk = "#1b2028";
constexpr const char* kPlotGrid = "#d5dae2";
constexpr const char* kFront = "#2971c6";
constexpr const char* kOther = "#8a93a0";

/// A logarithmic axis from `first` to `last`, in pixels.
class Axis {
 public:
  Axis(double least, double most, double first, double last) : first_(first), last_(last) {
    // Points lie off the edges; equal ones have an axis, too.
    constexpr double kOffTheEdge = 1.15;
    least_ = std::log(least / kOffTheEdge);
    most_ = std::log(most * kOffTheEdge);
  }
  double at(double value) const {
    return first_ + (last_ - first_) * (std::log(value) - least_) / (most_ - least_);
  }
  /// Returns 1, 2 and 5 times the powers of ten on the axis.
  std::vector<double> ticks() const {
    std::vector<double> ticks;
    const int lowest = static_cast<int>(std::floor(least_ / std::log(10.0)));
    const int highest = static_cast<int>(std::ceil(most_ / std::log(10.0)));
    for (int power = lowest; power <= highest; ++power) {
      for (const double step : {1.0, 2.0, 5.0}) {
        const double value = step * std::pow(10.0, power);
        if (std::log(value) >= least_ && std::log(value) <= most_) ticks.push_back(value);
      }
    }
    return ticks;
  }

 private:
  double first_, last_, least_, most_;
};

Axis axis_of(const std::vector<PlotPoint>& points, double PlotPoint::*quantity, double first,
             double last) {
  const auto [least, most] =
      std::minmax_element(points.begin(), points.end(),
                          [&](const auto& a, const auto& b) { return a.*quantity < b.*quantity; });
  return {*least.*quantity, *most.*quantity, first, last};
}

}  // namespace

std::string draw_trade_off(std::vector<PlotPoint> points, const PlotWords& words) {
  std::stable_sort(points.begin(), points.end(),
                   [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  const Axis across = axis_of(points, &PlotPoint::x, kPlotLeft, kPlotWidth - kPlotRight);
  const Axis down = axis_of(points, &PlotPoint::y, kPlotHeight - kPlotBottom, kPlotTop);
  std::string text;
  const auto line = [&]<class... Values>(fmt::format_string<Values...> form, Values&&... values) {
    fmt::format_to(std::back_inserter(text), form, std::forward<Values>(values)...);
    text += '\n';
  };
  line(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
       R"(font-family="Helvetica, Arial, sans-serif" font-size="12">)",
       kPlotWidth, kPlotHeight);
  line("<title>{}</title>", escape_markup(words.title));
  line(R"(<rect width="{}" height="{}" fill="#ffffff"/>)", kPlotWidth, kPlotHeight);
  line(R"(<text x="{}" y="24" fill="{}" font-size="14">{}</text>)", kPlotLeft, kPlotInk,
       escape_markup(words.title));
  for (const double tick : across.ticks()) {
    const double x = across.at(tick);
    line(R"(<path d="M{0:.1f} {1}V{2}" stroke="{3}"/>)", x, kPlotTop, kPlotHeight - kPlotBottom,
         kPlotGrid);
    line(R"(<text x="{:.1f}" y="{}" fill="{}" text-anchor="middle">{:g}</text>)", x,
         kPlotHeight - kPlotBottom + 18, kPlotInk, tick);
  }
  for (const double tick : down.ticks()) {
    const double y = down.at(tick);
    line(R"(<path d="M{0} {1:.1f}H{2}" stroke="{3}"/>)", kPlotLeft, y, kPlotWidth - kPlotRight,
         kPlotGrid);
    line(R"(<text x="{}" y="{:.1f}" fill="{}" text-anchor="end">{:g}</text>)", kPlotLeft - 8, y + 4,
         kPlotInk, tick);
  }
  line(R"(<text x="{:.1f}" y="{}" fill="{}" text-anchor="middle">{}</text>)",
       (kPlotLeft + kPlotWidth - kPlotRight) / 2, kPlotHeight - 16, kPlotInk,
       escape_markup(words.x));
  line(R"svg(<text transform="translate(20 {:.1f}) rotate(-90)" fill="{}" text-anchor="middle">)svg"
       "{}</text>",
       (kPlotTop + kPlotHeight - kPlotBottom) / 2, kPlotInk, escape_markup(words.y));
  std::string path;
  for (const PlotPoint& point : points) {
    if (!point.is_on_front) continue;
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', across.at(point.x),
                        down.at(point.y));
  }
  if (!path.empty()) line(R"(<path d="{}" fill="none" stroke="{}"/>)", path, kFront);
  for (const PlotPoint& point : points) {
    const double x = across.at(point.x);
    const double y = down.at(point.y);
    if (point.is_chosen) {
      line(R"(<circle cx="{:.1f}" cy="{:.1f}" r="8" fill="none" stroke="{}"/>)", x, y, kFront);
    }
    line(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}" stroke="{}"/>)", x, y,
         point.is_on_front ? kFront : "#ffffff", point.is_on_front ? kFront : kOther);
    line(R"(<text x="{:.1f}" y="{:.1f}" fill="{}" font-size="10">{}</text>)", x + 7, y - 7,
         kPlotInk, escape_markup(point.label));
  }
  line("</svg>");
  return text;
}

}  // namespace dapple::report
