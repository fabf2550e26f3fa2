// Shows the plans of a trade-off: as a table, as CSV and as a plot.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/pareto/trade_off_plans.h"
#include "dapple/report/show.h"

namespace dapple::app {

/// The plans with what follows from them.
struct Shown {
  const ParetoRequest& request;
  const Comparison& comparison;
  /// Comparison::points() and their limits_of().
  const std::vector<planner::TradeOffPoint>& points;
  const planner::TradeOffLimits& limits;
  /// pareto_front() of the points.
  const std::vector<bool>& is_on_front;
  std::optional<std::size_t> chosen;
  /// The proven bound on all plans.
  const TradeOffClaim& claim;
};

/// Returns a row for each plan, the chosen one, and what is proven of all others.
std::string pareto_table(const Shown& shown, const report::TextStyle& style);

/// Returns a row for each plan as CSV.
std::string pareto_csv(const Shown& shown);

/// Returns the plans that were found as SVG; nothing if there are none.
std::optional<std::string> pareto_plot(const Shown& shown);

}  // namespace dapple::app
