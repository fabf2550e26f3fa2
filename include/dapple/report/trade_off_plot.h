// Draws plans by two quantities that both should be small, such as price and time.
#pragma once

#include <string>
#include <vector>

namespace dapple::report {

struct PlotPoint {
  /// Neither is negative.
  double x = 0;
  double y = 0;
  /// The point's label, such as "16".
  std::string label;
  /// Whether no other point is better in one quantity and at least as good in the other.
  bool is_on_front = false;
  bool is_chosen = false;
};

struct PlotWords {
  std::string title;
  std::string x;
  std::string y;
};

/// Returns an SVG document: the points of the front are filled and joined by a line, the chosen one
/// has a ring. A quantity whose values span more than a factor of six has a logarithmic axis.
/// Requires: there are points. O(points * log(points)).
std::string draw_trade_off(std::vector<PlotPoint> points, const PlotWords& words);

}  // namespace dapple::report
