// What "dapple-plan verify" does with a file: a plan, or the certificate of a trade-off.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dapple/command_line/console.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/request.h"
#include "dapple/planner/verify/verify.h"

namespace dapple::app {

struct VerifyRequest {
  /// The file to verify.
  std::string file;
  /// The file with the proof of a plan's bound.
  std::optional<std::string> proof;
  std::int64_t budget = planner::kVerificationBudget;
  std::optional<Duration> time_limit;
  bool is_json = false;
};

// Both verify the text of the requested file, print what they find, and return the exit code. They
// throw Error(BadInput) with the false claims.
int verify_plan(const VerifyRequest& request, const std::string& text,
                command_line::Console& console);
int verify_trade_off(const VerifyRequest& request, const std::string& text,
                     command_line::Console& console);

/// Says what was neither confirmed nor refuted, and why.
std::string unchecked_reason(const planner::Unchecked& unchecked);

/// Says what ended a verification that was stopped.
std::string end_text(StopReason reason);

}  // namespace dapple::app
