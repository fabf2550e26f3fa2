// dapple-trade-off/1: plans that trade time against price or memory, and what follows from all of
// them.
#pragma once

#include <string>
#include <string_view>

#include "dapple/plan/trade_off.h"

namespace dapple::io {

/// Returns the trade-off in canonical form: the same content gives the same bytes. O(plans).
/// Requires: as write_plan(), of every plan.
std::string write_trade_off(const TradeOffDocument& document);

/// Reads a trade-off and checks that every plan's hashes and digest are those of its content, and
/// that all plans are of the same model and of what the same request asks for; against memory, that
/// the topologies are the first one with a limit on the memory of each device. Whether what it
/// claims is true is not checked. Throws Error(BadInput). O(text).
TradeOffDocument read_trade_off(std::string_view text, const std::string& source_name);

}  // namespace dapple::io
