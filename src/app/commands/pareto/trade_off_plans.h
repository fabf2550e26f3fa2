// The plans that a trade-off compares, each found by a search of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/pareto/pareto_request.h"
#include "dapple/command_line/console.h"
#include "dapple/plan/document.h"
#include "dapple/plan/trade_off.h"
#include "dapple/planner/result/trade_off.h"

namespace dapple::app {

/// A search and what it has found.
struct TradeOffPlan {
  TradeOffSearch search;
  std::int64_t devices = 0;
  /// The servers in words, such as "2 x node".
  std::string servers;
  /// What all devices cost in an hour, in billionths.
  Wide price_per_hour = 0;
  /// Why there is no plan, such as "no plan fits"; or "stopped".
  std::string remark = {};
  /// What made the request impossible for this topology, or an empty text.
  std::string fault = {};
  /// Why there is no proof of the plan's bound; empty if there is one, or none was asked for.
  std::string unproven = {};
  planner::TradeOffPoint point = {};

  const std::optional<PlanDocument>& document() const { return search.document; }
};

struct Comparison {
  /// Whether the topology states prices.
  bool has_prices = false;
  std::vector<TradeOffPlan> plans;
  /// Clusters that were left out, in words.
  std::vector<std::string> left_out;
  /// Whether a signal ended the last search, or later ones were not begun.
  bool was_interrupted = false;

  std::vector<planner::TradeOffPoint> points() const;
  /// Whether any plan was found.
  bool has_plans() const;
  /// Samples of an iteration.
  std::int64_t global_batch_size = 1;
};

/// Makes all plans: for each cluster by rising size, or for falling limits of memory until no plan
/// fits or one within the request's limits is proven to be impossible. Throws what plan throws for
/// the same options.
Comparison compare_plans(const ParetoRequest& request, command_line::Console& console);

}  // namespace dapple::app
