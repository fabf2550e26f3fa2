// Why no plan was made.
#pragma once

#include <string>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple::planner {

/// The result where no plan fits: what comes closest, what it lacks, and what would help.
struct Infeasible {
  /// Whether the search was stopped before this was known; then nothing below is filled in.
  bool stopped = false;
  /// Whether it is proven that no plan fits, and not only that none was found.
  bool is_certain = true;
  /// The pins, as texts.
  std::vector<std::string> pins;
  /// Why no plan satisfies the pins, whatever memory there is; then there is no closest plan.
  std::string conflict;
  /// The name of the tightest device of the closest plan.
  std::string device;
  Bytes needed;
  Bytes limit;
  /// The shape of the closest plan in words.
  std::string closest_plan;
  /// The cheapest remedy that was found to work.
  std::string remedy;
  Bytes missing() const { return needed - limit; }
};

}  // namespace dapple::planner
