// The ways in which runtimes let context-parallel ranks exchange keys and values.
#pragma once

#include <optional>

#include "dapple/profile/collective.h"

namespace dapple {

/// The ways in which context-parallel ranks of a runtime may exchange keys and values; none without
/// context parallelism.
struct ContextExchanges {
  bool all_gather = false;
  bool ring = false;
  bool all_to_all = false;

  constexpr bool any() const { return all_gather || ring || all_to_all; }
  /// Whether it has the one, or any where it is not known which is meant.
  constexpr bool include(std::optional<ContextExchange> exchange) const {
    if (!exchange) return any();
    return *exchange == ContextExchange::AllGather ? all_gather
           : *exchange == ContextExchange::Ring    ? ring
                                                   : all_to_all;
  }
};

}  // namespace dapple
