// The request that the options of "dapple-plan pareto" make.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/request/plan_request.h"
#include "dapple/plan/trade_off.h"

namespace dapple::app {

struct ParetoRequest {
  /// The search for each plan, without baselines.
  PlanCommandRequest plan;
  TradeOffRequest terms;
  std::optional<std::int64_t> max_devices;
  /// The files of the certificate and of the plot.
  std::optional<std::string> certificate;
  std::optional<std::string> plot;
  bool is_csv = false;
};

std::vector<command_line::OptionSection> pareto_options();

/// Reads the options. Throws Error(Usage).
ParetoRequest pareto_request(const command_line::Options& options);

}  // namespace dapple::app
