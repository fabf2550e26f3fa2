// The micro-batch sizes that a search looks at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/planner/request/planner.h"

namespace dapple::planner {

struct MicroBatchSizes {
  std::vector<std::int64_t> sizes;  // ascending
  std::vector<std::string> cut;     // what was left out, and why
};

/// The divisors of the global batch, or the one asked for. Throws Error(BadInput) where that one is
/// no divisor or makes too many micro-batches. O(sqrt of the global batch).
MicroBatchSizes micro_batch_sizes(const PlannerOptions& options);

}  // namespace dapple::planner
