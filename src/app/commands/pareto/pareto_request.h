// The request that the options of "dapple-plan pareto" make.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/request/plan_request.h"
#include "dapple/core/quantity.h"
#include "dapple/planner/result/trade_off.h"

namespace dapple::app {

/// What counts beside time.
enum class Against : std::uint8_t { Price, Memory };

struct ParetoRequest {
  /// The search for each plan, without baselines.
  PlanCommandRequest plan;
  Against against = Against::Price;
  planner::Objective objective = planner::Objective::Cost;
  std::optional<std::int64_t> max_devices;
  /// Samples per second.
  std::optional<Factor> min_throughput;
  /// The most that 1,000 iterations may cost.
  std::optional<Factor> budget;
  /// How much longer than the fastest plan the chosen one may take, as a fraction.
  std::optional<Factor> slack;
  /// The file of the plot.
  std::optional<std::string> plot;
  bool is_csv = false;
};

std::vector<command_line::OptionSection> pareto_options();

/// Reads the options. Throws Error(Usage).
ParetoRequest pareto_request(const command_line::Options& options);

}  // namespace dapple::app
