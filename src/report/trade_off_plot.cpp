#include "dapple/report/trade_off_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
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

/// An axis from `first` to `last`, in pixels: logarithmic where its values span a large factor,
/// otherwise linear.
class Axis {
 public:
  Axis(double least, double most, double first, double last) : first_(first), last_(last) {
    constexpr double kLargeFactor = 6;
    is_logarithmic_ = least > 0 && most / least > kLargeFactor;
    // Points lie off the edges; equal ones have an axis, too.
    constexpr double kOffTheEdge = 0.06;
    const double low = scaled(least);
    const double high = scaled(most);
    const double room = high > low ? kOffTheEdge * (high - low) : std::max(1e-9, std::abs(low) / 2);
    low_ = low - room;
    high_ = high + room;
  }
  double at(double value) const {
    return first_ + (last_ - first_) * (scaled(value) - low_) / (high_ - low_);
  }
  /// Returns round values on the axis: 1, 2 and 5 times the powers of ten, or some multiples of one
  /// of them.
  std::vector<double> ticks() const {
    return is_logarithmic_ ? logarithmic_ticks() : linear_ticks();
  }

 private:
  double scaled(double value) const { return is_logarithmic_ ? std::log10(value) : value; }

  std::vector<double> logarithmic_ticks() const {
    std::vector<double> ticks;
    for (double power = std::floor(low_); power <= high_; ++power) {
      for (const double step : {1.0, 2.0, 5.0}) {
        const double value = step * std::pow(10.0, power);
        if (std::log10(value) >= low_ && std::log10(value) <= high_) ticks.push_back(value);
      }
    }
    return ticks;
  }

  std::vector<double> linear_ticks() const {
    constexpr double kMostTicks = 6;
    double step = std::pow(10.0, std::floor(std::log10(high_ - low_)) - 1);
    for (const double factor : {2.0, 2.5, 2.0, 2.0, 2.5, 2.0}) {
      if ((high_ - low_) / step <= kMostTicks) break;
      step *= factor;
    }
    std::vector<double> ticks;
    const auto last = static_cast<std::int64_t>(std::floor(high_ / step));
    for (auto i = static_cast<std::int64_t>(std::ceil(std::max(0.0, low_) / step)); i <= last;
         ++i) {
      ticks.push_back(static_cast<double>(i) * step);
    }
    return ticks;
  }

  double first_, last_;
  bool is_logarithmic_ = false;
  double low_ = 0;
  double high_ = 1;
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
